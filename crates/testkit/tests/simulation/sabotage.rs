//! Surroundings that break one invariant each, to see that its checker notices.

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// I1: a producer believes that it committed what it rolled back.
    FalseCommit,
    /// I2: the sink says that it has messages which it has not.
    Swallowed,
    /// I3: the sink gets other bytes than were written.
    Garbled,
    /// I4: the sink takes every message twice.
    Repeated,
    /// I5: the sink says that it has messages before it has them.
    Overtaken,
    /// I6: somebody writes into the table.
    Meddled,
    /// I7: at the end there is no relay.
    Deserted,
    /// I8: somebody gives messages up.
    GivenUp,
}
