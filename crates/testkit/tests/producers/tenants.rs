//! r08: a dedupe key belongs to its tenant. The refused forms are in `inputs.rs`.

use anyhow::Result;
use postrider::{EnqueueError, Enqueued, InvalidMessage};
use testkit::conformance::given::Given;
use uuid::Uuid;

use super::fixture::{Fixture, order};

async fn offer(
    fixture: &Fixture,
    tenant: Option<Uuid>,
    dedupe_key: Option<&str>,
) -> Result<Result<Enqueued, EnqueueError>> {
    let message = Given { tenant, dedupe_key: dedupe_key.map(str::to_owned), ..Given::default() }.message()?;
    let mut transaction = fixture.pool.begin().await?;
    let answer = fixture.outbox.enqueue(&mut transaction, message).await;
    transaction.commit().await?;
    Ok(answer)
}

#[tokio::test]
async fn s0_38_r08_with_both_set_the_key_begins_with_the_tenant() -> Result<()> {
    let fixture = Fixture::new().await?;
    let (tenant, other) = (Uuid::new_v4(), Uuid::new_v4());
    for key in
        [format!("{tenant}/1"), format!("{}/1", tenant.simple()), format!("{tenant}//"), format!("{tenant}/{other}/2")]
    {
        assert!(offer(&fixture, Some(tenant), Some(&key)).await?.is_ok(), "{key}");
    }
    assert_eq!(fixture.ids().await?.len(), 4);
    Ok(())
}

#[tokio::test]
async fn s0_39_r08_a_mismatch_is_an_error_and_inserts_nothing() -> Result<()> {
    let fixture = Fixture::new().await?;
    let (tenant, other) = (Uuid::new_v4(), Uuid::new_v4());
    for key in [format!("{other}/1"), tenant.to_string(), format!("{tenant}0/1"), format!(" {tenant}/1"), "1".into()] {
        let refused = offer(&fixture, Some(tenant), Some(&key)).await?;
        let is_mismatch = |error: &InvalidMessage| *error == InvalidMessage::TenantMismatch { tenant };
        assert!(
            matches!(&refused, Err(EnqueueError::Invalid { source, .. }) if is_mismatch(source)),
            "{key}: {refused:?}"
        );
    }
    assert!(fixture.ids().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn s0_40_r08_with_one_of_the_two_nothing_is_checked() -> Result<()> {
    let fixture = Fixture::new().await?;
    let (tenant, other) = (Uuid::new_v4(), Uuid::new_v4());
    assert!(offer(&fixture, None, None).await?.is_ok());
    assert!(offer(&fixture, Some(tenant), None).await?.is_ok());
    assert!(offer(&fixture, None, Some("anything")).await?.is_ok());
    assert!(offer(&fixture, None, Some(&format!("{other}/1"))).await?.is_ok());
    assert_eq!(fixture.ids().await?.len(), 4);
    Ok(())
}

#[tokio::test]
async fn s09_two_tenants_with_the_same_domain_key_both_get_their_message() -> Result<()> {
    let fixture = Fixture::new().await?;
    for tenant in [Uuid::new_v4(), Uuid::new_v4()] {
        let answer = fixture.enqueue(order(1).tenant(tenant).dedupe_key(format!("{tenant}/order 1"))).await?;
        assert!(answer.is_new());
    }
    Ok(())
}

#[tokio::test]
async fn s08_the_nil_uuid_is_no_tenant() -> Result<()> {
    let fixture = Fixture::new().await?;
    for key in [None, Some(format!("{}/1", Uuid::nil()))] {
        let refused = offer(&fixture, Some(Uuid::nil()), key.as_deref()).await?;
        let said = matches!(refused, Err(EnqueueError::Invalid { source: InvalidMessage::NilTenant, .. }));
        assert!(said, "{refused:?}");
    }
    assert!(fixture.ids().await?.is_empty());
    Ok(())
}
