//! Deliberate defects, which show that the tests can fail. For Postrider's own tests and nobody else.
//!
//! Without the feature `sabotage` [`has`] is a constant `false`, so that no defect is compiled in. A build with the feature
//! holds all of them, and the variable `POSTRIDER_SABOTAGE` chooses one when a process starts; without it the build behaves
//! as any other. `scripts/sabotage` sets it for each defect and expects a test to fail, see `scripts/sabotage.tsv`.

/// Something that is wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// A message is marked as delivered before its sink is called.
    AckBeforePublish,
    /// Rows whose last allowed attempt crashed stay where they are.
    NoSweep,
    /// A publish whose outcome is unknown gives its attempt back.
    UnknownReleased,
    /// Failures while a sink is known to be down cost attempts.
    OutageCostsAttempts,
    /// A settle that touched nothing is counted as one that did.
    StaleSettleCounted,
    /// A publish that takes longer than its lease loses it.
    LeaseNotRenewed,
    /// All that fails together is tried again together.
    NoJitter,
    /// A sink that asks for more time than the policy's delay does not get it.
    RetryAfterCut,
    /// A dedupe key is left out of the row.
    DedupeIgnored,
    /// Who works for one tenant gets the messages of all.
    TenantIgnored,
    /// Whoever names a row may settle it.
    NoFence,
    /// A worker's late settle touches the row that it claimed again itself.
    FenceByWorkerOnly,
    /// A late nack touches the row that another has.
    NackWithoutToken,
    /// A lease ends by the clock of the worker that asked for it.
    WorkersClock,
    /// A purge deletes rows that are being published.
    PurgeOfProcessing,
    /// A dedupe key goes with its row when delivered rows are deleted.
    DedupeKeyDeleted,
    /// A replayed message has no attempt left.
    ReplayKeepsAttempts,
    /// A dispatcher is woken before there is anything to find, and not again.
    WakeBeforeCommit,
    /// A batch comes in whatever order the database answered.
    OrderByReturning,
    /// Row security does not bind the owner of the table.
    RowSecurityNotForced,
    /// An event counts as processed before its handler ran.
    MarkBeforeHandling,
    /// A consumer that lost its claim marks the event of another as processed.
    ConfirmWithoutToken,
    /// A webhook goes wherever its receiver sends it on to.
    RedirectFollowed,
    /// A webhook may be sent to the machine itself and its neighbours.
    AnyAddress,
    /// A signature does not cover the time, so that an old request can be sent again.
    TimeNotSigned,
    /// A message that no queue is bound for counts as delivered.
    MandatoryOff,
    /// A secret is printed by whoever prints what holds it.
    SecretInDebug,
}

impl Defect {
    /// Every defect.
    pub const ALL: [Self; 27] = [
        Self::AckBeforePublish,
        Self::NoSweep,
        Self::UnknownReleased,
        Self::OutageCostsAttempts,
        Self::StaleSettleCounted,
        Self::LeaseNotRenewed,
        Self::NoJitter,
        Self::RetryAfterCut,
        Self::DedupeIgnored,
        Self::TenantIgnored,
        Self::NoFence,
        Self::FenceByWorkerOnly,
        Self::NackWithoutToken,
        Self::WorkersClock,
        Self::PurgeOfProcessing,
        Self::DedupeKeyDeleted,
        Self::ReplayKeepsAttempts,
        Self::WakeBeforeCommit,
        Self::OrderByReturning,
        Self::RowSecurityNotForced,
        Self::MarkBeforeHandling,
        Self::ConfirmWithoutToken,
        Self::RedirectFollowed,
        Self::AnyAddress,
        Self::TimeNotSigned,
        Self::MandatoryOff,
        Self::SecretInDebug,
    ];
}

/// Whether this process has the defect.
#[cfg(not(feature = "sabotage"))]
pub const fn has(_: Defect) -> bool {
    false
}

/// Whether this process has the defect.
///
/// # Panics
///
/// If `POSTRIDER_SABOTAGE` names no defect: a test that then passes would be taken for one without teeth.
#[cfg(feature = "sabotage")]
pub fn has(defect: Defect) -> bool {
    static CHOSEN: std::sync::LazyLock<Option<Defect>> = std::sync::LazyLock::new(|| {
        let name = std::env::var("POSTRIDER_SABOTAGE").ok()?;
        let chosen = Defect::ALL.into_iter().find(|defect| format!("{defect:?}") == name);
        Some(chosen.unwrap_or_else(|| panic!("POSTRIDER_SABOTAGE is {name:?}, which is no defect")))
    });
    *CHOSEN == Some(defect)
}

/// A text, with the defect in it if this process has it.
///
/// # Panics
///
/// If the text does not hold what is replaced exactly once: the defect has to move with the text.
pub fn spoil(defect: Defect, text: &'static str, good: &str, bad: &str) -> &'static str {
    if !has(defect) {
        return text;
    }
    assert_eq!(text.matches(good).count(), 1, "{defect:?} replaces {good:?}, which must be there once");
    text.replace(good, bad).leak()
}
