//! What columns and states are usually called, without underscores and capitals; the likeliest first.

pub(super) const ID: [&str; 8] = ["id", "eventid", "messageid", "outboxid", "uuid", "guid", "eventuuid", "messageuuid"];
pub(super) const NAMESPACE: [&str; 1] = ["namespace"];
pub(super) const TOPIC: [&str; 13] = [
    "topic",
    "eventtype",
    "eventname",
    "messagetype",
    "aggregatetype",
    "destination",
    "routingkey",
    "provider",
    "channel",
    "queue",
    "subject",
    "type",
    "kind",
];
pub(super) const EVENT_TYPE: [&str; 3] = ["eventtype", "type", "eventname"];
pub(super) const AGGREGATE_TYPE: [&str; 2] = ["aggregatetype", "entitytype"];
pub(super) const KEY: [&str; 9] = [
    "key",
    "messagekey",
    "partitionkey",
    "orderingkey",
    "aggregateid",
    "entityid",
    "groupid",
    "recipientid",
    "subjectid",
];
pub(super) const TENANT: [&str; 5] = ["tenantid", "tenant", "organizationid", "orgid", "workspaceid"];
pub(super) const DEDUPE_KEY: [&str; 6] =
    ["dedupekey", "dedupkey", "idempotencykey", "deduplicationkey", "deduplicationid", "uniquekey"];
pub(super) const PAYLOAD: [&str; 10] = [
    "payload",
    "payloadjson",
    "body",
    "data",
    "message",
    "content",
    "eventdata",
    "eventpayload",
    "event",
    "serializedevent",
];
pub(super) const PAYLOAD_BYTES: [&str; 3] = ["payloadbytes", "rawpayload", "rawbody"];
pub(super) const HEADERS: [&str; 4] = ["headers", "messageheaders", "metadata", "attributes"];
pub(super) const STATUS: [&str; 6] =
    ["status", "state", "deliverystatus", "outboxstatus", "eventstatus", "messagestatus"];
pub(super) const MARK: [&str; 18] = [
    "processed",
    "published",
    "sent",
    "delivered",
    "dispatched",
    "done",
    "completed",
    "handled",
    "finished",
    "isprocessed",
    "ispublished",
    "issent",
    "isdelivered",
    "isdispatched",
    "isdone",
    "iscompleted",
    "ishandled",
    "isfinished",
];
pub(super) const LOCKED_BY: [&str; 7] =
    ["lockedby", "claimedby", "leasedby", "reservedby", "workerid", "lockowner", "leaseowner"];
pub(super) const LOCKED_UNTIL: [&str; 9] = [
    "lockeduntil",
    "leaseuntil",
    "leaseduntil",
    "claimeduntil",
    "reserveduntil",
    "leaseexpiresat",
    "lockexpiresat",
    "lockuntil",
    "invisibleuntil",
];
pub(super) const LOCKED_AT: [&str; 8] =
    ["lockedat", "claimedat", "leasedat", "reservedat", "processingstartedat", "startedat", "pickedat", "pickedupat"];
pub(super) const LAST_ATTEMPT_AT: [&str; 5] =
    ["lastattemptat", "lasttriedat", "lasttryat", "attemptedat", "lastattempt"];
pub(super) const ATTEMPTS: [&str; 11] = [
    "attempts",
    "attemptcount",
    "retrycount",
    "retries",
    "tries",
    "trycount",
    "numattempts",
    "numretries",
    "deliveryattempts",
    "failurecount",
    "failures",
];
pub(super) const MAX_ATTEMPTS: [&str; 4] = ["maxattempts", "maxretries", "maxtries", "retrylimit"];
pub(super) const NEXT_ATTEMPT_AT: [&str; 14] = [
    "nextattemptat",
    "nextretryat",
    "nexttryat",
    "retryat",
    "dueat",
    "availableat",
    "visibleat",
    "scheduledat",
    "scheduledfor",
    "deliverat",
    "sendat",
    "runat",
    "processafter",
    "notbefore",
];
pub(super) const SEQ: [&str; 5] = ["seq", "sequence", "sequencenumber", "position", "ordinal"];
pub(super) const LAST_ERROR: [&str; 6] =
    ["lasterror", "error", "errormessage", "lasterrormessage", "failurereason", "lastfailure"];
pub(super) const CREATED_AT: [&str; 8] =
    ["createdat", "created", "createdon", "occurredat", "insertedat", "enqueuedat", "recordedat", "timestamp"];
pub(super) const UPDATED_AT: [&str; 6] =
    ["updatedat", "updated", "updatedon", "modifiedat", "changedat", "lastmodifiedat"];
pub(super) const DELIVERED_AT: [&str; 19] = [
    "deliveredat",
    "publishedat",
    "sentat",
    "processedat",
    "dispatchedat",
    "completedat",
    "finishedat",
    "processedon",
    "publishedon",
    "senton",
    "deliveredon",
    "dispatchedon",
    "completedon",
    "completiondate",
    "completeddate",
    "processeddate",
    "publisheddate",
    "delivereddate",
    "sentdate",
];

pub(super) const PENDING: [&str; 12] = [
    "pending",
    "new",
    "ready",
    "queued",
    "waiting",
    "created",
    "unsent",
    "open",
    "unprocessed",
    "scheduled",
    "enqueued",
    "unpublished",
];
pub(super) const PROCESSING: [&str; 11] = [
    "processing",
    "publishing",
    "sending",
    "inprogress",
    "inflight",
    "delivering",
    "running",
    "locked",
    "claimed",
    "leased",
    "started",
];
pub(super) const DELIVERED: [&str; 10] = [
    "delivered",
    "published",
    "sent",
    "processed",
    "dispatched",
    "completed",
    "complete",
    "done",
    "succeeded",
    "success",
];
pub(super) const DEAD: [&str; 9] = [
    "dead",
    "deadlettered",
    "deadletter",
    "givenup",
    "gaveup",
    "abandoned",
    "exhausted",
    "discarded",
    "failedpermanently",
];
pub(super) const FAILED: [&str; 5] = ["failed", "retry", "retrying", "errored", "error"];
