//! The scripts of the inbox on Redis, one by one, on every state that a key can have. R66: a token that is not the
//! holder's changes nothing.
#![cfg(feature = "redis")]

use redis::aio::MultiplexedConnection;
use testkit::brokers::redis::Redis;

const CLAIM: i64 = 60_000;
const KEEP: i64 = 600_000;
/// What a key that is there before has left.
const BEFORE: i64 = 10_000;
const KEY: &str = "pf:evt:processed:mailer:x";

struct Server {
    _redis: Redis,
    line: MultiplexedConnection,
}

/// A script, the milliseconds it gets, and whether it gets an attempt.
struct Verb(&'static str, i64, bool);

const BEGIN: Verb = Verb(include_str!("../src/redis/begin.lua"), CLAIM, true);
const CONFIRM: Verb = Verb(include_str!("../src/redis/confirm.lua"), KEEP, true);
const RELEASE: Verb = Verb(include_str!("../src/redis/release.lua"), KEEP, false);
const EXTEND: Verb = Verb(include_str!("../src/redis/extend.lua"), CLAIM, true);
const MARK: Verb = Verb(include_str!("../src/redis/mark.lua"), KEEP, false);
const UNMARK: Verb = Verb(include_str!("../src/redis/unmark.lua"), KEEP, false);

impl Server {
    async fn start() -> Self {
        let redis = Redis::start().await.expect("Redis");
        let client = redis::Client::open(redis.url()).expect("a client");
        let line = client.get_multiplexed_async_connection().await.expect("a connection");
        Self { _redis: redis, line }
    }

    /// Runs a verb as token `me` on a key that holds `before` (nothing: no key). Answers what it said, what the key holds
    /// then, and about how long it will be there.
    async fn run(&mut self, verb: &Verb, attempt: &str, before: &str) -> (String, String, i64) {
        let line = &mut self.line;
        redis::cmd("DEL").arg(KEY).exec_async(line).await.expect("it deletes");
        if !before.is_empty() {
            redis::cmd("SET").arg(KEY).arg(before).arg("PX").arg(BEFORE).exec_async(line).await.expect("it sets");
        }
        let script = redis::Script::new(verb.0);
        let mut call = script.prepare_invoke();
        call.key(KEY).arg("me").arg(verb.1);
        if verb.2 {
            call.arg(attempt);
        }
        let (word, detail): (String, String) = call.invoke_async(line).await.expect("it answers");
        let value: Option<String> = redis::cmd("GET").arg(KEY).query_async(line).await.expect("it answers");
        let left: i64 = redis::cmd("PTTL").arg(KEY).query_async(line).await.expect("it answers");
        let about = [BEFORE, CLAIM, KEEP].into_iter().find(|millis| left <= *millis && left > millis / 2);
        // The milliseconds left of a claim are not the same each time.
        let detail = if word == "in progress" { String::new() } else { detail };
        (format!("{word} {detail}").trim_end().to_owned(), value.unwrap_or_default(), about.unwrap_or(left))
    }

    async fn check(&mut self, verb: &Verb, table: &[(&str, &str, &str, &str, i64)]) {
        for (attempt, before, says, after, left) in table {
            let ran = self.run(verb, attempt, before).await;
            assert_eq!(ran, ((*says).into(), (*after).into(), *left), "attempt {attempt:?} on {before:?}");
        }
    }
}

#[tokio::test]
async fn begin_takes_what_is_free() {
    let table = [
        ("", "", "first", "claimed:me", CLAIM),
        ("0.2", "", "first", "claimed:me:0.2", CLAIM),
        ("", "released:0.3", "first", "claimed:me:0.3", CLAIM),
        ("0.3", "released:0.3", "first", "claimed:me:0.3", CLAIM),
        ("0.10", "released:0.9", "first", "claimed:me:0.10", CLAIM),
        ("1.1", "released:0.20", "first", "claimed:me:1.1", CLAIM),
        ("0.2", "released:0.3", "stale 0.3", "released:0.3", BEFORE),
        ("0.20", "released:1.1", "stale 1.1", "released:1.1", BEFORE),
        ("0.9", "released:0.10", "stale 0.10", "released:0.10", BEFORE),
        ("0.2", "released:", "first", "claimed:me:0.2", CLAIM),
        ("0.2", "released:what", "first", "claimed:me:0.2", CLAIM),
        // Our own earlier try, whose answer was lost.
        ("", "claimed:me", "first", "claimed:me", CLAIM),
        ("0.2", "claimed:me:0.3", "first", "claimed:me:0.3", CLAIM),
        ("", "claimed:you", "in progress", "claimed:you", BEFORE),
        ("", "claimed:you:0.3", "in progress", "claimed:you:0.3", BEFORE),
        ("0.4", "claimed:you:0.3", "in progress", "claimed:you:0.4", BEFORE),
        ("0.4", "claimed:you", "in progress", "claimed:you:0.4", BEFORE),
        ("0.2", "claimed:you:0.3", "stale 0.3", "claimed:you:0.3", BEFORE),
        ("", "claimed:meyou", "in progress", "claimed:meyou", BEFORE),
        ("", "claimed:", "in progress", "claimed:", BEFORE),
        ("", "processed", "processed", "processed", BEFORE),
        ("0.9", "processed:you:0.3", "processed", "processed:you:0.3", BEFORE),
        ("0.1", "processed:0.3", "processed", "processed:0.3", BEFORE),
        ("", "1", "processed", "1", BEFORE),
        ("", "Claimed:me", "processed", "Claimed:me", BEFORE),
    ];
    Server::start().await.check(&BEGIN, &table).await;
}

#[tokio::test]
async fn r66_confirm_marks_what_is_ours_or_nobody_s_and_nothing_else() {
    let table = [
        ("", "claimed:me", "processed", "processed:me", KEEP),
        ("0.3", "claimed:me:0.3", "processed", "processed:me:0.3", KEEP),
        ("0.3", "claimed:me:0.4", "processed", "processed:me:0.4", KEEP),
        // It ran out, or was flushed; another may have tried and failed meanwhile.
        ("", "", "processed", "processed:me", KEEP),
        ("0.3", "", "processed", "processed:me:0.3", KEEP),
        ("0.3", "released:0.4", "processed", "processed:me:0.3", KEEP),
        // An earlier try did it.
        ("", "processed:me", "processed", "processed:me", BEFORE),
        ("0.3", "processed:me:0.3", "processed", "processed:me:0.3", BEFORE),
        ("", "claimed:you", "lost", "claimed:you", BEFORE),
        ("", "claimed:meyou", "lost", "claimed:meyou", BEFORE),
        ("0.3", "claimed:you:0.4", "lost", "claimed:you:0.4", BEFORE),
        ("", "processed", "lost", "processed", BEFORE),
        ("", "processed:you", "lost", "processed:you", BEFORE),
        ("", "processed:meyou", "lost", "processed:meyou", BEFORE),
        ("", "1", "lost", "1", BEFORE),
    ];
    Server::start().await.check(&CONFIRM, &table).await;
}

#[tokio::test]
async fn r66_release_frees_what_is_ours_and_nothing_else() {
    const NONE: i64 = -2;
    let table = [
        ("", "claimed:me", "released", "", NONE),
        ("", "claimed:me:0.3", "released", "released:0.3", KEEP),
        ("", "", "released", "", NONE),
        ("", "released:0.3", "released", "released:0.3", BEFORE),
        ("", "claimed:you", "lost", "claimed:you", BEFORE),
        ("", "claimed:you:0.3", "lost", "claimed:you:0.3", BEFORE),
        ("", "claimed:meyou", "lost", "claimed:meyou", BEFORE),
        ("", "processed", "lost", "processed", BEFORE),
        ("", "processed:me", "lost", "processed:me", BEFORE),
        ("", "1", "lost", "1", BEFORE),
    ];
    Server::start().await.check(&RELEASE, &table).await;
}

#[tokio::test]
async fn r66_extend_keeps_what_is_ours_or_nobody_s_and_nothing_else() {
    let table = [
        ("", "claimed:me", "extended", "claimed:me", CLAIM),
        ("0.3", "claimed:me:0.4", "extended", "claimed:me:0.4", CLAIM),
        ("", "", "extended", "claimed:me", CLAIM),
        ("0.3", "", "extended", "claimed:me:0.3", CLAIM),
        ("", "claimed:you", "lost", "claimed:you", BEFORE),
        ("", "claimed:meyou", "lost", "claimed:meyou", BEFORE),
        ("0.3", "released:0.3", "lost", "released:0.3", BEFORE),
        // Our own commit, whose answer was lost.
        ("", "processed:me", "extended", "processed:me", BEFORE),
        ("0.3", "processed:me:0.4", "extended", "processed:me:0.4", BEFORE),
        ("", "processed:meyou", "lost", "processed:meyou", BEFORE),
        ("", "processed:you", "lost", "processed:you", BEFORE),
        ("", "1", "lost", "1", BEFORE),
    ];
    Server::start().await.check(&EXTEND, &table).await;
}

#[tokio::test]
async fn mark_is_a_set_nx_that_respects_claims() {
    let table = [
        ("", "", "first", "processed:me", KEEP),
        ("", "released:0.3", "first", "processed:me", KEEP),
        ("", "processed:me", "first", "processed:me", BEFORE),
        ("", "processed:you", "processed", "processed:you", BEFORE),
        ("", "processed", "processed", "processed", BEFORE),
        ("", "1", "processed", "1", BEFORE),
        ("", "claimed:you", "in progress", "claimed:you", BEFORE),
        ("", "claimed:me", "in progress", "claimed:me", BEFORE),
    ];
    Server::start().await.check(&MARK, &table).await;
}

#[tokio::test]
async fn unmark_takes_back_what_is_ours_and_nothing_else() {
    const NONE: i64 = -2;
    let table = [
        ("", "processed:me", "unmarked", "", NONE),
        ("", "", "lost", "", NONE),
        ("", "processed:me:0.3", "lost", "processed:me:0.3", BEFORE),
        ("", "processed:meyou", "lost", "processed:meyou", BEFORE),
        ("", "processed:you", "lost", "processed:you", BEFORE),
        ("", "processed", "lost", "processed", BEFORE),
        ("", "released:0.3", "lost", "released:0.3", BEFORE),
        ("", "claimed:me", "lost", "claimed:me", BEFORE),
    ];
    Server::start().await.check(&UNMARK, &table).await;
}
