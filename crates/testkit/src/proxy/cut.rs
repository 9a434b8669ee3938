//! Which replies are to be lost, and which requests have replies that are.
//!
//! The bytes looked for may arrive in two pieces. The first piece has then been forwarded, but the message is not
//! complete without the second, so the client still does not learn what it says, and the server not yet what it is asked.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// How many bytes of earlier data are remembered; longer patterns are found in one piece of data only.
const REMEMBERED: usize = 255;

/// The armed cuts of one proxy, for all of its connections.
#[derive(Default)]
pub(super) struct Cuts {
    armed: Mutex<Vec<Cut>>,
    done: AtomicUsize,
}

struct Cut {
    bytes: Vec<u8>,
    left: usize,
}

/// The end of what one connection has received so far.
#[derive(Default)]
pub(super) struct Tail(Vec<u8>);

impl Cuts {
    pub(super) fn arm(&self, bytes: &[u8], times: usize) {
        assert!(!bytes.is_empty(), "a cut needs bytes to look for");
        self.armed.lock().unwrap_or_else(PoisonError::into_inner).push(Cut { bytes: bytes.to_vec(), left: times });
    }

    pub(super) fn done(&self) -> usize {
        self.done.load(Ordering::SeqCst)
    }

    /// True when `data` completes a pattern; that pattern then has one cut less left.
    pub(super) fn hit(&self, tail: &mut Tail, data: &[u8]) -> bool {
        let mut armed = self.armed.lock().unwrap_or_else(PoisonError::into_inner);
        armed.retain(|cut| cut.left > 0);
        let hit = armed.iter_mut().find(|cut| tail.is_completed_by(data, &cut.bytes));
        let is_hit = hit.is_some();
        if let Some(cut) = hit {
            cut.left -= 1;
            self.done.fetch_add(1, Ordering::SeqCst);
        }
        tail.append(data);
        is_hit
    }
}

impl Tail {
    /// Looks only for occurrences that end in `data`: what was complete before has been forwarded already.
    fn is_completed_by(&self, data: &[u8], bytes: &[u8]) -> bool {
        let start = (self.0.len() + 1).saturating_sub(bytes.len());
        let text = [self.0.get(start..).unwrap_or_default(), data].concat();
        text.windows(bytes.len()).any(|window| window == bytes)
    }

    fn append(&mut self, data: &[u8]) {
        self.0.extend_from_slice(data);
        let surplus = self.0.len().saturating_sub(REMEMBERED);
        self.0.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_in_two_pieces_is_found() {
        let (cuts, mut tail) = (Cuts::default(), Tail::default());
        cuts.arm(b"COMMIT\0", 1);
        assert!(!cuts.hit(&mut tail, b"C..COM"));
        assert!(cuts.hit(&mut tail, b"MIT\0Z"));
        assert_eq!(cuts.done(), 1);
    }

    #[test]
    fn what_passed_before_arming_is_not_found_again() {
        let (cuts, mut tail) = (Cuts::default(), Tail::default());
        assert!(!cuts.hit(&mut tail, b"COMMIT\0"));
        cuts.arm(b"COMMIT\0", 1);
        assert!(!cuts.hit(&mut tail, b"x"));
    }

    #[test]
    fn a_cut_is_used_up() {
        let (cuts, mut tail) = (Cuts::default(), Tail::default());
        cuts.arm(b"x", 2);
        assert!(cuts.hit(&mut tail, b"x") && cuts.hit(&mut tail, b"x"));
        assert!(!cuts.hit(&mut tail, b"x"));
    }
}
