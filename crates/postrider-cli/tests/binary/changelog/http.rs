//! Pages and streams of the changelog over HTTP.

use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt as _;
use serde_json::{Value, json};
use testkit::{Signal, within};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{arrive, ask, config, start, write};
use crate::support::{PATIENCE, Receiver, Relay, Site};

#[tokio::test]
async fn pages_are_read_over_http_and_what_is_wrong_has_its_status() -> Result<()> {
    for site in [Site::postgres().await?, Site::sqlite().await?] {
        let site = site.migrated().await?;
        let receiver = Receiver::start().await?;
        write(&site, 0..5).await?;
        let mut relay = start(&site, &config(&site, &receiver.url)).await?;
        let ask = |path: String| ask(&relay, Box::leak(path.into_boxed_str()), None);
        let (status, first) = ask("/changelog/shop?limit=2".into()).await?;
        assert_eq!((status, &first["more"]), (200, &json!(true)), "{first}");
        assert_eq!(first["entries"].as_array().map(Vec::len), Some(2));
        assert_eq!(first["entries"][1]["payload"]["json"]["mutations"][0]["externalId"], "order-1", "{first}");
        let next = first["next"].as_str().context("a cursor")?;
        let rest = ask(format!("/changelog/shop?after={next}&limit=100000")).await?.1;
        assert_eq!(rest["entries"].as_array().map(Vec::len), Some(3), "{rest}");
        assert_eq!((&rest["more"], &rest["store"]), (&json!(false), &first["store"]));
        let stamp = first["entries"][1]["versionstamp"].as_str().context("a stamp")?;
        assert_eq!(ask(format!("/changelog/shop?after={stamp}")).await?.1["entries"], rest["entries"]);

        let other = format!("c1.{}.{stamp}.{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
        let store = next.split('.').nth(1).context("a store")?;
        let lost = format!("c1.{store}.{stamp}.{}", uuid::Uuid::new_v4().simple());
        for (path, expected, said) in [
            ("/changelog/shop?limit=0".to_owned(), 400, "limit"),
            ("/changelog/shop?limit=x".to_owned(), 400, "limit"),
            ("/changelog/shop?after=x".to_owned(), 400, "after"),
            ("/changelog/shop?cursor=x".to_owned(), 400, "no parameter"),
            ("/changelog/other".to_owned(), 404, "no changelog"),
            ("/changelog/other/stream".to_owned(), 404, "no changelog"),
            (format!("/changelog/shop?after={other}"), 409, "is of changelog"),
            (format!("/changelog/shop/stream?after={other}"), 409, "is of changelog"),
            (format!("/changelog/shop?after={lost}"), 409, "not in this changelog"),
            (format!("/changelog/shop/stream?after={lost}"), 409, "not in this changelog"),
        ] {
            let (status, answer) = ask(path.clone()).await?;
            assert_eq!(status, expected, "{path}: {answer}");
            assert!(answer["error"].as_str().is_some_and(|error| error.contains(said)), "{path}: {answer}");
        }
        site.source().await?.run("alter table postrider_changelog rename to elsewhere").await?;
        let (status, answer) = ask("/changelog/shop".into()).await?;
        assert_eq!(status, 500, "{answer}");
        assert!(answer["error"].as_str().is_some_and(|error| error.contains("postrider migrate")), "{answer}");
        assert_eq!(relay.stop().await?, 0);
    }
    Ok(())
}

#[tokio::test]
async fn a_token_is_needed_where_there_is_one_and_what_is_not_served_is_not_there() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    let receiver = Receiver::start().await?;
    write(&site, 0..1).await?;
    let served = config(&site, &receiver.url);
    let guarded = served.replace("serve = true", "serve = true\ntoken = \"bird\"");
    let mut relay = start(&site, &guarded).await?;
    for path in ["/changelog/shop", "/changelog/shop/stream"] {
        for token in [None, Some("bir"), Some("birds"), Some("Bird")] {
            assert_eq!(ask(&relay, path, token).await?.0, 401, "{path} {token:?}");
        }
    }
    assert_eq!(ask(&relay, "/changelog/shop", Some("bird")).await?.0, 200);
    assert!(!relay.log().contains("bird"), "{}", relay.log());
    site.file("postrider.toml", &served.replace("serve = true", ""))?;
    relay.signal(Signal::SIGHUP)?;
    let gone = || async { ask(&relay, "/changelog/shop", Some("bird")).await.is_ok_and(|answer| answer.0 == 404) };
    within(PATIENCE, "it is gone", gone).await.with_context(|| relay.log())?;
    assert_eq!(relay.stop().await?, 0);
    Ok(())
}

/// The lines of a stream, as they come.
struct Lines {
    body: std::pin::Pin<Box<dyn futures::Stream<Item = reqwest::Result<axum::body::Bytes>> + Send>>,
    read: Vec<u8>,
}

impl Lines {
    async fn open(relay: &Relay, path: &str) -> Result<Self> {
        let url = format!("http://{}{path}", relay.admin().await?);
        let answer = reqwest::Client::builder().no_proxy().build()?.get(url).send().await?;
        ensure!(answer.status() == 200, "{}", answer.status());
        ensure!(answer.headers()["content-type"] == "application/x-ndjson");
        let body = futures::stream::unfold(answer, |mut answer| async move {
            let chunk = answer.chunk().await.transpose()?;
            Some((chunk, answer))
        });
        Ok(Self { body: Box::pin(body), read: Vec::new() })
    }

    /// The next line, or none at the end.
    async fn next(&mut self) -> Result<Option<Value>> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            match tokio::time::timeout(PATIENCE, self.body.next()).await.context("no line")? {
                Some(chunk) => self.read.extend(chunk?),
                None => return Ok(None),
            }
        }
    }

    /// The next line with an entry.
    async fn entry(&mut self) -> Result<Value> {
        loop {
            match self.next().await? {
                Some(line) if line.get("entry").is_some() => return Ok(line),
                Some(_) => {}
                None => bail!("the stream ended"),
            }
        }
    }
}

#[tokio::test]
async fn a_stream_follows_and_ends_with_the_relay() -> Result<()> {
    for site in [Site::postgres().await?, Site::sqlite().await?] {
        let site = site.migrated().await?;
        let receiver = Receiver::start().await?;
        write(&site, 0..3).await?;
        let mut relay = start(&site, &config(&site, &receiver.url)).await?;
        let mut lines = Lines::open(&relay, "/changelog/shop/stream").await?;
        let mut cursor = String::new();
        for number in 0..5 {
            if number == 3 {
                write(&site, 3..5).await?;
            }
            let line = lines.entry().await?;
            assert_eq!(line["entry"]["uowId"], format!("uow-{number}"));
            if number == 2 {
                cursor = line["cursor"].as_str().context("a cursor")?.to_owned();
            }
        }
        let mut later = Lines::open(&relay, &format!("/changelog/shop/stream?after={cursor}")).await?;
        assert_eq!(later.entry().await?["entry"]["uowId"], "uow-3", "a cursor goes on where it was");
        let mut ahead = Lines::open(&relay, "/changelog/shop/stream?after=00000000000000000006ffff").await?;
        let said = ahead.next().await?.context("a line")?;
        let place = said["cursor"].as_str().context("a cursor")?;
        assert!(said.get("entry").is_none() && place.contains(".00000000000000000006ffff."), "it is heard: {said}");
        let mut likewise = Lines::open(&relay, &format!("/changelog/shop/stream?after={place}")).await?;
        write(&site, 5..8).await?;
        assert_eq!(ahead.entry().await?["entry"]["uowId"], "uow-6", "a stamp that lies ahead is waited for");
        assert_eq!(likewise.entry().await?["entry"]["uowId"], "uow-6", "and so is its cursor");
        assert_eq!(relay.stop().await?, 0);
        while let Some(line) = lines.next().await? {
            assert!(line.get("error").is_none(), "{line}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn streams_are_bounded_and_their_places_come_back() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    let receiver = Receiver::start().await?;
    let relay = start(&site, &config(&site, &receiver.url)).await?;
    let mut open = Vec::new();
    for _ in 0..64 {
        open.push(Lines::open(&relay, "/changelog/shop/stream").await?);
    }
    let (status, answer) = ask(&relay, "/changelog/shop/stream", None).await?;
    assert_eq!(status, 503, "{answer}");
    assert_eq!(ask(&relay, "/changelog/shop", None).await?.0, 200, "pages are read all the same");
    write(&site, 0..5).await?;
    arrive(&receiver, &relay, 5).await?;
    drop(open);
    let again = || async { Lines::open(&relay, "/changelog/shop/stream").await.is_ok() };
    within(PATIENCE, "a place", again).await?;
    Ok(())
}

#[tokio::test]
async fn pages_that_nobody_takes_are_bounded_and_their_places_come_back() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    let receiver = Receiver::start().await?;
    write(&site, 0..1).await?;
    // More than the buffers between two sockets hold.
    let large = "update postrider_changelog set payload = json_set(payload, '$.json.large', hex(zeroblob(5000000)))";
    site.source().await?.run(large).await?;
    let relay = start(&site, &config(&site, &receiver.url)).await?;
    let mut clients = Vec::new();
    for _ in 0..16 {
        let mut client = tokio::net::TcpStream::connect(relay.admin().await?).await?;
        client.write_all(b"GET /changelog/shop HTTP/1.1\r\nhost: here\r\n\r\n").await?;
        let mut begin = [0; 15];
        client.read_exact(&mut begin).await?;
        assert_eq!(&begin, b"HTTP/1.1 200 OK");
        clients.push(client);
    }
    let (status, answer) = ask(&relay, "/changelog/shop", None).await?;
    assert_eq!(status, 503, "{answer}");
    drop(clients);
    let again = || async { ask(&relay, "/changelog/shop", None).await.is_ok_and(|answer| answer.0 == 200) };
    within(PATIENCE, "a place", again).await?;
    Ok(())
}
