//! Tables of other shapes: the conformance suite for every layout, the tables exactly as their owners describe them, and what
//! each claim does when its process dies.

#[path = "layouts/catalogs.rs"]
mod catalogs;
#[path = "layouts/conformance.rs"]
mod conformance;
#[path = "layouts/fits.rs"]
mod fits;
#[path = "layouts/harness.rs"]
mod harness;
#[path = "layouts/held.rs"]
mod held;
#[path = "layouts/kills.rs"]
mod kills;
#[path = "layouts/kills_elsewhere.rs"]
mod kills_elsewhere;
#[path = "layouts/mysql.rs"]
mod mysql;
#[path = "layouts/nulls.rs"]
mod nulls;
#[path = "layouts/others.rs"]
mod others;
#[path = "layouts/ours.rs"]
mod ours;
#[path = "layouts/packfinderz.rs"]
mod packfinderz;
#[path = "layouts/parts.rs"]
mod parts;
#[path = "layouts/plans.rs"]
mod plans;
#[path = "layouts/scene.rs"]
mod scene;
#[path = "layouts/shapes.rs"]
mod shapes;
#[path = "layouts/sqlite.rs"]
mod sqlite;
#[path = "layouts/tables.rs"]
mod tables;
#[path = "layouts/talkie.rs"]
mod talkie;
#[path = "layouts/unreadable.rs"]
mod unreadable;
#[path = "layouts/valinor.rs"]
mod valinor;
#[path = "layouts/walked.rs"]
mod walked;
