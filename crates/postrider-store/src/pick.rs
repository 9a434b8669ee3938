//! Which of the rows that a claim could take it does take, for databases where that is decided outside of SQL.

/// How many of the rows, given by their sizes in order, a claim takes: up to its limit, and until it has its bytes. The
/// first row is always taken.
pub(crate) fn fitting(sizes: impl IntoIterator<Item = u64>, limit: usize, max_bytes: u64) -> usize {
    let mut total = 0_u64;
    let fits = sizes.into_iter().take(limit).take_while(|size| {
        let room = total < max_bytes.max(1);
        total = total.saturating_add(*size);
        room
    });
    fits.count()
}

/// An equal share of a claim for each of so many groups, rounded up.
pub(crate) fn share(limit: usize, groups: usize) -> usize {
    limit.div_ceil(groups.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_stops_at_its_limit_and_once_it_has_its_bytes() {
        assert_eq!(fitting([10, 10, 10], 2, u64::MAX), 2);
        assert_eq!(fitting([1_000; 5], 9, 2_500), 3, "the third reaches the size");
        assert_eq!(fitting([1_000; 5], 9, 0), 1, "the first is always taken");
        assert_eq!(fitting([], 9, 9), 0);
        assert_eq!(fitting([1], 0, 9), 0);
    }

    #[test]
    fn shares_are_rounded_up() {
        assert_eq!((share(10, 3), share(10, 0), share(2, 4)), (4, 10, 1));
    }
}
