//! Order per key in a claim: which candidates wait for none of their key, and what may be taken along with them.

use std::collections::HashSet;

use postrider_core::store::{LARGEST_CLAIM, LONGEST_RUN};
use sqlx::{MySqlConnection, Row};
use uuid::Uuid;

use super::claim::{Candidate, Claim};
use super::run::fetch;
use super::statements::OurStatements;
use super::types::{Bound, RowKey, uuid_or_null};

/// For how many lines a claim looks for more than their first row; each is a statement.
const RUNS_PER_CLAIM: usize = 32;

/// A row that is the first of its line (namespace, tenant, key), with others behind it.
pub(super) struct Place {
    row: RowKey,
    namespace: String,
    key: Vec<u8>,
    tenant: Option<Uuid>,
}

/// What may be claimed among the rows that have been due for longest.
#[derive(Default)]
pub(super) struct Near {
    pub rows: Vec<Candidate>,
    /// Most of those rows wait for one of their key that somebody is publishing.
    pub moves: bool,
}

impl Claim<'_> {
    /// Locks what may be claimed among the rows of a namespace that have been due for longest, and the first ones of their
    /// keys: most of the others may wait for these.
    pub(super) async fn near(
        &self,
        connection: &mut MySqlConnection,
        ours: &OurStatements,
        namespace: &str,
        share: usize,
    ) -> Result<Near, sqlx::Error> {
        let mut bound = Bound::default();
        bound.add(namespace.to_owned()).tenant(self.within.tenant).count((2 * share).clamp(16, LARGEST_CLAIM as usize));
        let mut numbers: Vec<RowKey> = Vec::new();
        let (mut moving, mut looked_at) = (0, 0);
        for row in fetch(connection, &ours.claim_front, bound).await? {
            numbers.extend(row.try_get::<Option<i64>, _>(0)?.map(RowKey::Number));
            moving += row.try_get::<i64, _>(1)?;
            looked_at += row.try_get::<i64, _>(2)?;
        }
        let mut locked = Vec::new();
        for portion in numbers.chunks(ours.claim_near.largest()) {
            let Some((sql, portion)) = ours.claim_near.padded(portion) else { continue };
            let mut bound = Bound::default();
            bound.rows(portion).add(self.request.max_attempts).tenant(self.within.tenant);
            locked.extend(self.read(&fetch(connection, sql, bound).await?)?);
        }
        locked.sort_unstable_by(|one, other| (one.since, &one.row).cmp(&(other.since, &other.row)));
        locked.truncate(share);
        Ok(Near { rows: locked, moves: moving * 2 >= looked_at && looked_at > 0 })
    }

    /// Drops candidates that wait for an earlier row of their key, and answers those that others wait for.
    ///
    /// The statement that locked them has left out what it could, but it compares rows as they are with others as they
    /// were when it began: a row that was committed meanwhile, and one of its key before it, would be taken for a first.
    pub(super) async fn in_turn(
        &self,
        connection: &mut MySqlConnection,
        ours: &OurStatements,
        picked: &mut Vec<Candidate>,
    ) -> Result<Vec<Place>, sqlx::Error> {
        let numbers: Vec<RowKey> = picked.iter().map(|row| row.row.clone()).collect();
        let (mut firsts, mut places) = (HashSet::new(), Vec::new());
        for portion in numbers.chunks(ours.claim_turn.largest()) {
            let Some((sql, portion)) = ours.claim_turn.padded(portion) else { continue };
            let mut bound = Bound::default();
            bound.rows(portion);
            for row in fetch(connection, sql, bound).await? {
                let place = RowKey::read(&row, 0, self.shape())?;
                firsts.insert(place.clone());
                if row.try_get::<i64, _>(4)? != 0 {
                    let (namespace, key, tenant) = (row.try_get(1)?, row.try_get(2)?, uuid_or_null(&row, 3)?);
                    places.push(Place { row: place, namespace, key, tenant });
                }
            }
        }
        picked.retain(|row| firsts.contains(&row.row));
        places.retain(|place| firsts.contains(&place.row));
        Ok(places)
    }

    /// Locks what comes after the first rows of their keys, as far as there is room, the second of each key before the
    /// third of any.
    pub(super) async fn runs(
        &self,
        connection: &mut MySqlConnection,
        ours: &OurStatements,
        heads: &[Candidate],
        places: Vec<Place>,
    ) -> Result<Vec<Candidate>, sqlx::Error> {
        let room = self.limit().saturating_sub(heads.len()).min(self.request.followers as usize);
        let length = room.min(LONGEST_RUN as usize - 1);
        let mut found = Vec::new();
        for place in places.iter().take(if length == 0 { 0 } else { RUNS_PER_CLAIM }) {
            found.push(self.run_after(connection, ours, place, length).await?);
        }
        let numbers: Vec<RowKey> = found.iter().flatten().map(|row| row.row.clone()).collect();
        let locked = self.follow(connection, ours, &numbers).await?;
        let mut runs: Vec<(usize, Candidate)> = Vec::new();
        for run in found {
            // One that somebody else has locked ends its run.
            runs.extend(run.into_iter().take_while(|row| locked.contains(&row.row)).enumerate());
        }
        runs.sort_by_key(|(place, _)| *place);
        runs.truncate(room);
        Ok(runs.into_iter().map(|(_, row)| row).collect())
    }

    /// What comes after a row, up to the first that may not be taken.
    async fn run_after(
        &self,
        connection: &mut MySqlConnection,
        ours: &OurStatements,
        place: &Place,
        length: usize,
    ) -> Result<Vec<Candidate>, sqlx::Error> {
        let mut bound = Bound::default();
        bound.add(self.request.max_attempts).tenant(self.within.tenant).add(self.request.max_attempts);
        for _ in 0..2 {
            bound.add(place.namespace.clone()).add(place.key.clone()).add(place.tenant.map(Uuid::hyphenated));
            bound.row(&place.row).count(length);
        }
        bound.count(length);
        let mut run = Vec::new();
        for row in fetch(connection, &ours.claim_run, bound).await? {
            if row.try_get::<i64, _>(2)? == 0 {
                break;
            }
            let size: i64 = row.try_get(1)?;
            let row = RowKey::read(&row, 0, self.shape())?;
            run.push(Candidate { row, size: u64::try_from(size).unwrap_or(0), since: 0 });
        }
        Ok(run)
    }

    async fn follow(
        &self,
        connection: &mut MySqlConnection,
        ours: &OurStatements,
        numbers: &[RowKey],
    ) -> Result<HashSet<RowKey>, sqlx::Error> {
        let mut locked = HashSet::new();
        for portion in numbers.chunks(ours.claim_follow.largest()) {
            let Some((sql, portion)) = ours.claim_follow.padded(portion) else { continue };
            let mut bound = Bound::default();
            bound.rows(portion).add(self.request.max_attempts).add(self.request.max_attempts);
            for row in fetch(connection, sql, bound).await? {
                locked.insert(RowKey::read(&row, 0, self.shape())?);
            }
        }
        Ok(locked)
    }
}
