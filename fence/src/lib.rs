//! Fencing tokens checked where the writes happen.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(any(feature = "tokio-postgres", feature = "sqlx-postgres"))]
mod postgres;
#[cfg(feature = "rusqlite")]
mod rusqlite;
pub mod sql;
#[cfg(any(feature = "rusqlite", feature = "sqlx-sqlite"))]
mod sqlite;
#[cfg(any(feature = "sqlx-postgres", feature = "sqlx-sqlite", feature = "sqlx-mysql"))]
mod sqlx;
mod stamp;

pub use sql::{AdmitError, Fence};
pub use stamp::{InvalidStamp, MAX_RESOURCE, NoStamp, Stale, Stamp};
