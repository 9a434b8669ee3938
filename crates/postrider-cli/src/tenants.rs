//! Whether a source's tenants are kept apart, as its configuration asks for.

use postrider::any::AnyStore;
use postrider::operate::{Finding, Severity};
use postrider::store::StoreErrorKind;
use postrider::{StoreError, TenantSetting};

use crate::config::{RowLevelSecurity, Source};

/// Whether to prove it by trying, besides looking into the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    Try,
    /// For the start of a relay, which writes nothing that is not its work.
    LookOnly,
}

/// What is found of the application's role; nothing if nobody asks.
pub async fn examine(store: &AnyStore, source: &Source, proof: Proof) -> Result<Vec<Finding>, StoreError> {
    let tenants = &source.tenants;
    let Some(role) = tenants.application_role.as_ref().filter(|_| tenants.row_level_security != RowLevelSecurity::Off)
    else {
        return Ok(Vec::new());
    };
    let setting = TenantSetting::new(&tenants.setting)
        .map_err(|error| StoreError::new(StoreErrorKind::Refused, error.to_string()))?;
    let mut findings = store.examine_tenants(role, &setting).await?;
    if proof == Proof::Try {
        findings.push(store.prove_tenants(role, &setting).await?);
    }
    if tenants.row_level_security == RowLevelSecurity::Require {
        findings.iter_mut().filter(|finding| !finding.is_examined()).for_each(unproved);
    }
    if tenants.row_level_security == RowLevelSecurity::Warn {
        findings.iter_mut().for_each(|finding| finding.severity = finding.severity.min(Severity::Warning));
    }
    Ok(findings)
}

/// Where it must be so, not knowing is as bad as knowing that it is not.
fn unproved(finding: &mut Finding) {
    finding.severity = Severity::Problem;
    finding
        .fix
        .get_or_insert_with(|| "let the doctor ask as a role that may look, and may become the application's".into());
}

/// Refuses a source whose tenants must be kept apart and are not; what is only worth a warning is logged.
pub async fn check(store: &AnyStore, name: &str, source: &Source) -> Result<(), StoreError> {
    let findings = examine(store, source, Proof::LookOnly).await?;
    let (problems, rest): (Vec<_>, Vec<_>) =
        findings.into_iter().partition(|finding| finding.severity == Severity::Problem);
    for finding in rest.iter().filter(|finding| finding.severity == Severity::Warning) {
        tracing::warn!(source = name, "{finding}");
    }
    if problems.is_empty() {
        return Ok(());
    }
    let said = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    Err(StoreError::new(
        StoreErrorKind::Refused,
        format!("row_level_security is \"require\", and the application is not confined to its tenant: {said}"),
    ))
}
