//! Putting SQL text together, once, from templates and validated names.

use std::sync::Arc;

/// Rendered SQL text, cheap to hand to a driver.
pub type Sql = Arc<str>;

/// Fills a template's placeholders in the order given, so that a fragment may hold those after it, and leaves its
/// header comment out.
#[doc(hidden)]
pub fn fill<'a>(template: &str, values: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let body = template.lines().skip_while(|line| line.starts_with("--"));
    let mut sql = body.collect::<Vec<_>>().join("\n");
    for (placeholder, value) in values {
        sql = sql.replace(placeholder, value);
    }
    sql
}

/// Replaces the placeholders that are left, each of lower-case words in braces; what `resolve` does not know stays.
#[cfg_attr(not(any(feature = "postgres", feature = "mysql", feature = "sqlite")), allow(dead_code))]
pub(crate) fn resolved(template: &str, resolve: impl Fn(&str) -> Option<String>) -> String {
    let (mut sql, mut rest) = (String::with_capacity(template.len() * 2), template);
    while let Some((before, after)) = rest.split_once('{') {
        sql.push_str(before);
        let value = after.split_once('}').and_then(|(name, after)| Some((resolve(name)?, after)));
        match value {
            Some((value, after)) => {
                sql.push_str(&value);
                rest = after;
            }
            None => {
                sql.push('{');
                rest = after;
            }
        }
    }
    sql + rest
}

/// A statement about a list of items, for lists of 1, 2, 4 and so on, because databases without array parameters need
/// one placeholder per item. A list of any length is worked off in a few statements that stay prepared.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
#[derive(Debug)]
pub struct Portioned(Vec<Sql>);

#[cfg(any(feature = "mysql", feature = "sqlite"))]
impl Portioned {
    /// Renders a template for portions of up to `largest` items (a power of two); `{items}` becomes the item's text
    /// as often as needed, with commas between.
    pub(crate) fn render(template: &str, item: &str, largest: usize) -> Self {
        Self::render_lists(template, &[("{items}", item, ", ")], largest)
    }

    /// The same for several kinds of list: placeholder, an item's text, and what comes between.
    pub(crate) fn render_lists(template: &str, lists: &[(&str, &str, &str)], largest: usize) -> Self {
        let sizes = (0..).map(|power| 1_usize << power).take_while(|size| *size <= largest);
        let of_size = |size: usize| {
            let fill = |sql: String, (placeholder, item, between): &(&str, &str, &str)| {
                sql.replace(placeholder, &vec![*item; size].join(between))
            };
            Sql::from(lists.iter().fold(template.to_owned(), fill))
        };
        Self(sizes.map(of_size).collect())
    }

    /// The longest list that one statement takes.
    #[cfg(feature = "mysql")]
    pub(crate) fn largest(&self) -> usize {
        1 << (self.0.len() - 1)
    }

    /// The smallest statement that takes a list, and the list filled up to its size with the last item: for lists in
    /// which an item may come twice. Nothing if the list is empty or longer than [`largest`](Self::largest).
    #[cfg(feature = "mysql")]
    pub(crate) fn padded<'a, T>(&'a self, items: &'a [T]) -> Option<(&'a Sql, Vec<&'a T>)> {
        let (last, size) = (items.last()?, items.len().next_power_of_two());
        let sql = self.0.get(size.ilog2() as usize)?;
        let filler = std::iter::repeat_n(last, size - items.len());
        Some((sql, items.iter().chain(filler).collect()))
    }

    /// Splits a list into portions, the largest first, each with its statement.
    pub(crate) fn split<'a, T>(&'a self, mut items: &'a [T]) -> impl Iterator<Item = (&'a Sql, &'a [T])> {
        std::iter::from_fn(move || {
            let power = items.len().checked_ilog2()? as usize;
            let power = power.min(self.0.len() - 1);
            let (portion, rest) = items.split_at(1 << power);
            items = rest;
            Some((&self.0[power], portion))
        })
    }

    /// Every text, the one for a single item first, so that a test can prepare them all.
    pub fn texts(&self) -> &[Sql] {
        &self.0
    }
}

#[cfg(all(test, any(feature = "mysql", feature = "sqlite")))]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_worked_off_in_order_and_in_few_portions() {
        let statement = Portioned::render("select {items}", "?", 8);
        let items: Vec<usize> = (0..29).collect();
        let portions: Vec<_> = statement.split(&items).collect();
        assert_eq!(portions.iter().map(|(_, items)| items.len()).collect::<Vec<_>>(), [8, 8, 8, 4, 1]);
        assert_eq!(portions.iter().flat_map(|(_, items)| items.iter().copied()).collect::<Vec<_>>(), items);
        assert_eq!(&**portions[4].0, "select ?");
        assert_eq!(&**portions[3].0, "select ?, ?, ?, ?");
        assert_eq!(statement.split(&[0; 0]).count(), 0);
    }

    #[cfg(feature = "mysql")]
    #[test]
    fn a_list_is_filled_up_to_the_next_size() {
        let statement = Portioned::render_lists("{items} {cases}", &[("{items}", "?", ", "), ("{cases}", "c", " ")], 4);
        let (sql, items) = statement.padded(&[7, 8, 9]).expect("it fits");
        assert_eq!((&**sql, items), ("?, ?, ?, ? c c c c", vec![&7, &8, &9, &9]));
        assert_eq!(&**statement.padded(&[7]).expect("it fits").0, "? c");
        assert!(statement.padded(&[0; 0]).is_none() && statement.padded(&[0; 5]).is_none());
        assert_eq!(statement.largest(), 4);
    }
}
