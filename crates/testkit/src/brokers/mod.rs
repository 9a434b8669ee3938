//! Private message brokers. Each is started by the test process and ends with it, like the database servers.

pub mod moto;
pub mod rabbitmq;
