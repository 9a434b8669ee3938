//! How tenants are kept apart.

use super::super::{Config, RowLevelSecurity};
use super::{BASE, load, refusal};

/// A source on PostgreSQL; the next line is line 7.
fn on_postgres(tenants: &str) -> String {
    format!("{}[source.shop.tenants]\n{tenants}", BASE.replace("sqlite:shop.db", "postgres://relay@127.0.0.1/shop"))
}

fn accepted(text: &str, variables: &[(&str, &str)]) -> Config {
    load(text, variables).unwrap_or_else(|refused| panic!("{refused}")).config
}

#[test]
fn s11_nobody_looks_until_it_is_asked_for() {
    let tenants = &accepted(BASE, &[]).source["shop"].tenants;
    assert_eq!((tenants.row_level_security, tenants.application_role.as_deref()), (RowLevelSecurity::Off, None));
    assert_eq!(tenants.setting, "app.current_tenant_id");
    let asked = on_postgres("row_level_security = \"warn\"\napplication_role = \"shop\"\n");
    assert_eq!(accepted(&asked, &[]).source["shop"].tenants.row_level_security, RowLevelSecurity::Warn);
    let stricter = [("POSTRIDER__SOURCE__SHOP__TENANTS__ROW_LEVEL_SECURITY", "require")];
    assert_eq!(accepted(&asked, &stricter).source["shop"].tenants.row_level_security, RowLevelSecurity::Require);
}

#[test]
fn s11_what_could_not_be_looked_at_is_refused() {
    let require = "row_level_security = \"require\"\n";
    for (text, said) in [
        (on_postgres(require), "f:8:22: source.shop.tenants.row_level_security: it says nothing of whose rights"),
        (
            on_postgres("setting = \"tenant\"\n"),
            "source.shop.tenants.setting: the tenant setting's name is not two names",
        ),
        (
            on_postgres("application_role = \"a'b\"\n"),
            "source.shop.tenants.application_role: the application role's name holds '\\''",
        ),
        (on_postgres("row_level_security = \"requires\"\n"), "did you mean \"require\"?"),
        (on_postgres("aplication_role = \"shop\"\n"), "application_role"),
        (
            on_postgres(&format!("{require}application_role = \"shop\"\n"))
                .replace("[source.shop.tenants]", "layout = \"debezium\"\n[source.shop.tenants]"),
            "row_level_security: the layout \"debezium\" has no column for the tenant",
        ),
        (
            format!("{BASE}tenant = \"00000000-0000-0000-0000-000000000000\"\n"),
            "f:7:10: source.shop.tenant: tenant is the nil UUID; it must be another UUID",
        ),
        (format!("{BASE}[source.shop.tenants]\n{require}application_role = \"shop\"\n"), "has no row-level security"),
    ] {
        let refused = refusal(&text, &[]);
        assert!(refused.contains(said), "{refused}");
    }
}

#[test]
fn s08_a_source_for_one_tenant_reads_no_changelog_because_that_is_of_all() {
    let tenant = "tenant = \"0190b0a8-6d1c-7c3e-9c1d-3b1f0a6f4e2d\"\n";
    for more in [
        "enabled = true\nserve = true\n",
        "enabled = true\n[[route]]\nsink = \"out\"\nsource = \"shop\"\nchangelog = true\nname = \"trail\"\n",
    ] {
        let refused = refusal(&format!("{BASE}{tenant}[source.shop.changelog]\n{more}"), &[]);
        assert!(refused.contains("source.shop.changelog.enabled: its entries have no tenant"), "{refused}");
        assert_eq!(refusal(&format!("{BASE}[source.shop.changelog]\n{more}"), &[]), "");
    }
}
