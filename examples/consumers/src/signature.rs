//! Signatures of the Standard Webhooks specification: who sent a request, that it is as it was sent, and that it is fresh.
//!
//! HMAC-SHA256 over `id.timestamp.body`. One request may have several signatures, and a receiver several secrets: that is
//! how a secret is changed without a gap. Signatures are compared in constant time, and as a whole: a shorter one is
//! none.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// How far the sender's clock may be from ours. A request that was recorded cannot be sent again after that.
pub const TOLERANCE: Duration = Duration::from_secs(5 * 60);

const PREFIX: &str = "whsec_";
const VERSION: &str = "v1,";

/// The secrets that a request may be signed with. They are not printed.
#[derive(Clone)]
pub struct Secrets(Vec<Vec<u8>>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

/// No request can be checked with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSecrets {
    /// There is none.
    #[error("there is no secret; give the one that the relay signs with (signing_keys)")]
    None,
    /// One of them cannot be read.
    #[error("secret number {0} is no secret; it is whsec_ and at least 24 bytes in base64")]
    Unreadable(usize),
}

/// Why a request is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
    /// It is not signed.
    #[error("the request is not signed")]
    Unsigned,
    /// It may have been recorded and sent again.
    #[error("the request was signed too long ago, or the clocks differ")]
    NotFresh,
    /// It was changed, or somebody else sent it.
    #[error("no signature fits")]
    Forged,
}

impl Secrets {
    /// Reads secrets: `whsec_` and at least 24 bytes in base64.
    pub fn new(secrets: &[impl AsRef<str>]) -> Result<Self, BadSecrets> {
        let read = |(at, secret): (usize, &_)| {
            let decoded = AsRef::<str>::as_ref(secret).strip_prefix(PREFIX).and_then(|text| STANDARD.decode(text).ok());
            decoded.filter(|bytes| bytes.len() >= 24).ok_or(BadSecrets::Unreadable(at + 1))
        };
        match secrets.is_empty() {
            true => Err(BadSecrets::None),
            false => secrets.iter().enumerate().map(read).collect::<Result<_, _>>().map(Self),
        }
    }

    /// Checks a request that came now.
    pub fn check<'a>(
        &self,
        header: impl Fn(&str) -> Option<&'a str>,
        body: &[u8],
        now: SystemTime,
    ) -> Result<(), Untrusted> {
        let given = |name| header(name).ok_or(Untrusted::Unsigned);
        let (id, timestamp, signatures) =
            (given("webhook-id")?, given("webhook-timestamp")?, given("webhook-signature")?);
        // The text is what was signed; the number is only looked at.
        let sent = timestamp.parse().ok().and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
        let apart = |sent: SystemTime| now.duration_since(sent).unwrap_or_else(|ahead| ahead.duration());
        if sent.is_none_or(|sent| apart(sent) > TOLERANCE) {
            return Err(Untrusted::NotFresh);
        }
        let signatures = signatures.split(' ').filter_map(|text| STANDARD.decode(text.strip_prefix(VERSION)?).ok());
        let fits = |signature: Vec<u8>| self.0.iter().any(|secret| is_signed(secret, id, timestamp, body, &signature));
        if signatures.into_iter().any(fits) { Ok(()) } else { Err(Untrusted::Forged) }
    }
}

fn is_signed(secret: &[u8], id: &str, timestamp: &str, body: &[u8], signature: &[u8]) -> bool {
    // It takes keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return false };
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body);
    mac.verify_slice(signature).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: u64 = 1_700_000_000;
    const ID: &str = "018bcfe5-6800-7000-8000-000000000001";

    fn secret(byte: u8) -> String {
        format!("{PREFIX}{}", STANDARD.encode([byte; 32]))
    }

    fn sign(secret: u8, id: &str, body: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&[secret; 32]).expect("a key");
        mac.update(format!("{id}.{SENT}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }

    /// What a receiver with secrets 1 and 2 says of a request, so many seconds after it was signed.
    fn check(signature: Option<&str>, body: &[u8], later: i64) -> Result<(), Untrusted> {
        let sent = SENT.to_string();
        let header = |name: &str| match name {
            "webhook-id" => Some(ID),
            "webhook-timestamp" => Some(sent.as_str()),
            "webhook-signature" => signature,
            _ => None,
        };
        let now = UNIX_EPOCH + Duration::from_secs(SENT.saturating_add_signed(later));
        Secrets::new(&[secret(1), secret(2)]).expect("secrets").check(header, body, now)
    }

    #[test]
    fn s07_any_secret_and_any_signature_will_do() {
        let body = b"\xff\x00 not UTF-8";
        for signed in [sign(1, ID, body), sign(2, ID, body), format!("v1,AAAA v2,x {} junk", sign(2, ID, body))] {
            assert_eq!(check(Some(&signed), body, 0), Ok(()), "{signed}");
        }
    }

    #[test]
    fn s07_what_is_not_signed_with_a_secret_over_all_of_it_is_forged() {
        let good = sign(1, ID, b"body");
        let half = STANDARD.encode(&STANDARD.decode(&good[3..]).expect("base64")[..16]);
        let other = sign(1, "018bcfe5-6800-7000-8000-000000000002", b"body");
        for forged in [
            &sign(3, ID, b"body"),
            &other,
            &good.replace("v1,", "v1a,"),
            &good[3..],
            "v1,",
            "v1,AA==",
            &format!("v1,{half}"),
            "",
            "v1",
        ] {
            assert_eq!(check(Some(forged), b"body", 0), Err(Untrusted::Forged), "{forged:?}");
        }
        assert_eq!(check(Some(&good), b"body ", 0), Err(Untrusted::Forged));
        assert_eq!(check(None, b"body", 0), Err(Untrusted::Unsigned));
    }

    #[test]
    fn s07_a_recorded_request_is_refused_after_five_minutes() {
        let good = sign(1, ID, b"body");
        for (later, expected) in
            [(300, Ok(())), (-300, Ok(())), (301, Err(Untrusted::NotFresh)), (-301, Err(Untrusted::NotFresh))]
        {
            assert_eq!(check(Some(&good), b"body", later), expected, "{later}");
        }
    }

    #[test]
    fn secrets_are_checked_and_never_printed() {
        assert_eq!(Secrets::new(&[] as &[&str]).expect_err("none"), BadSecrets::None);
        for bad in ["canary", "whsec_canary!", "whsec_Y2FuYXJ5", ""] {
            let refused = Secrets::new(&[secret(1).as_str(), bad]).expect_err("no secret");
            assert_eq!(refused, BadSecrets::Unreadable(2));
            assert!(!refused.to_string().contains("canary"));
        }
        assert_eq!(format!("{:?}", Secrets::new(&[secret(1)]).expect("a secret")), "1 secrets");
    }
}
