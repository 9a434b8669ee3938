//! How the server would run a claim.

use postrider_core::operate::Finding;
use serde_json::Value;
use sqlx::Row;
use uuid::Uuid;

use super::{Given, PostgresStore};
use crate::postgres::error::sqlstate;

/// The role may not do what it asks the plan of.
const FORBIDDEN: &str = "42501";

pub(super) async fn look(store: &PostgresStore, large: bool) -> Result<Finding, sqlx::Error> {
    const NAME: &str = "claim-plan";
    let sql = format!("explain (format json) {}", store.statements().claim);
    let given = Given::default().add(None::<Vec<String>>)?.add(None::<Uuid>)?.add(10_i32)?.add(100_i64)?;
    let given = given.add(Uuid::nil())?.add(1_i64)?.add(i64::MAX)?;
    let rows = match store.ask(sql, given).await {
        Err(error) if sqlstate(&error).as_deref() == Some(FORBIDDEN) => {
            return Ok(Finding::not_examined(NAME, "this role may not claim, and so not ask for the plan"));
        }
        answer => answer?,
    };
    let plan: Value = rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)?;
    let (table, due) = (store.names.table(), format!("{}_due_idx", store.names.table()));
    let whole = any(&plan, &|node| node["Node Type"] == "Seq Scan" && node["Relation Name"] == table);
    let by_index = any(&plan, &|node| node["Index Name"] == due.as_str());
    if by_index && !whole {
        return Ok(Finding::fine(NAME, format!("a claim finds its rows by {due}")));
    }
    // The server reads a small table as a whole, because that is the quickest.
    if !large {
        return Ok(Finding::fine(NAME, "a claim reads the whole table, which is small yet"));
    }
    Ok(Finding::problem(
        NAME,
        format!("a claim would read the whole table instead of {due}"),
        store.text(
            "see that the indexes are there and that enable_indexscan, enable_seqscan and random_page_cost are as usual, then run: analyze {table}",
        ),
    ))
}

/// Whether a node of a plan is such.
fn any(plan: &Value, is: &dyn Fn(&Value) -> bool) -> bool {
    match plan {
        Value::Array(parts) => parts.iter().any(|part| any(part, is)),
        Value::Object(parts) => is(plan) || parts.values().any(|part| any(part, is)),
        _ => false,
    }
}
