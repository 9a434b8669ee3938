//! Our own table goes the way of all layouts, and costs nothing for it: its hot statements are written down in `ours.sql`, so that
//! a change is seen by whoever makes it.

use std::fmt::Write as _;

use postrider::layout::Layout;
use postrider::postgres::statements::{EnqueueStatements, StoreStatements};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/layouts/ours.sql");
/// Set to write the file anew.
const WRITE: &str = "POSTRIDER_WRITE_GOLDEN";

#[test]
fn the_hot_statements_of_our_own_table_are_those_that_were_reviewed() {
    let layout = Layout::default();
    let (store, enqueue) = (StoreStatements::render(&layout), EnqueueStatements::render(&layout));
    let hot: [(&str, &str); 7] = [
        ("claim", &store.claim),
        ("ack", &store.ack.by_address),
        ("ack_delete", &store.ack_delete.by_address),
        ("enqueue_one", &enqueue.enqueue_one.plain),
        ("enqueue_one, with a dedupe key", &enqueue.enqueue_one.deduplicating),
        ("enqueue_many", &enqueue.enqueue_many.plain),
        ("enqueue_many, with dedupe keys", &enqueue.enqueue_many.deduplicating),
    ];
    let mut rendered = String::new();
    for (name, sql) in hot {
        writeln!(rendered, "-- {name}\n{};\n", sql.trim()).expect("a text can be written to");
    }
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(GOLDEN, &rendered).expect("the file can be written");
    }
    let reviewed = std::fs::read_to_string(GOLDEN).expect("the file is there");
    assert_eq!(
        rendered, reviewed,
        "the statements of our own table have changed; measure what that costs, then run this with {WRITE}=1"
    );
}
