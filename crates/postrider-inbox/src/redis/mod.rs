//! The inbox on Redis: one key per consumer and event, on one server or in a cluster.
//!
//! A delivery takes a claim that lasts for a short time and is extended while its guard lives. A commit turns it into a
//! mark that lasts for a long time. Each verb is one script and one round trip on one key, and compares tokens, so that
//! one who was late changes nothing. Only Redis' own clock decides when something runs out; a guard looks at a monotonic
//! clock, to stop early.
//!
//! The key is `<prefix>:<consumer>:<event id>`. What its value says:
//!
//! | value | meaning | how long |
//! |---|---|---|
//! | `claimed:<token>` or `claimed:<token>:<attempt>` | a delivery is being handled | the claim time |
//! | `released:<attempt>` | nobody handles it; an older attempt is late | the time to keep |
//! | `processed:<token>` or `processed:<token>:<attempt>` | it was processed | the time to keep |
//! | anything else, such as `1` or `processed` | it was processed, whoever wrote it | as the writer says |
//!
//! An attempt is `<replayed>.<number>`. The token of what was processed tells a commit that is tried again that its first
//! try succeeded and only the answer was lost.
//!
//! | verb | script | free | claimed by us | claimed by another | processed |
//! |---|---|---|---|---|---|
//! | begin | `begin.lua` | claimed: first | first (tried again) | in progress, or stale | already processed |
//! | commit | `confirm.lua` | processed | processed | lost | lost, unless by us |
//! | release, drop | `release.lua` | nothing | free | lost | lost |
//! | extend | `extend.lua` | claimed again | lasts longer | lost | lost, unless by us |
//! | check and mark | `mark.lua` | processed: false | — | in progress | true, unless by us |
//! | a mark that failed | `unmark.lua` | nothing | — | nothing | free, if by us |
//!
//! What fails, fails towards a repeat. A server that forgets (a restart without persistence, an eviction, a flush, a
//! failover before the replica had it) lets an event in once more; [`RedisInbox::examine`] warns of what may make it
//! forget. A server that cannot be reached lets nothing in, unless [`Unreachable::Proceed`] is set. A consumer that dies
//! leaves a claim that runs out. Attempts are remembered by claims and releases: after a crash of the consumer, an older
//! attempt is no longer told from a newer.
//!
//! The user needs `evalsha`, `eval`, `get`, `set`, `del`, `pttl`, `pexpire` and `ping` on the keys of the prefix, `cluster`
//! for a cluster, and `config|get` for the start-up check. Redis 6.0 or newer.
//!
//! | module | what it holds |
//! |---|---|
//! | `config` | settings and every check of them |
//! | `link` | the connection to a server or cluster, and getting a new one |
//! | `script`, `outcome` | the verbs, and what answers and errors mean |
//! | `inbox`, `guard` | the inbox, and the claim that is kept while a handler runs |
//! | `unmark` | taking back a mark whose caller did not learn of it |
//! | `examine` | what may make the server forget |

mod config;
mod examine;
mod guard;
mod inbox;
mod link;
mod outcome;
mod script;
mod unmark;

pub use config::{DEFAULT_CLAIM, DEFAULT_PREFIX, RedisInboxBuilder, Unreachable};
pub use examine::Warning;
pub use guard::RedisGuard;
pub use inbox::RedisInbox;
