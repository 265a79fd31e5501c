//! Fencing tokens checked where the writes happen.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(all(unix, feature = "files"))]
#[cfg_attr(docsrs, doc(cfg(all(unix, feature = "files"))))]
pub mod files;
#[cfg(feature = "http")]
#[cfg_attr(docsrs, doc(cfg(feature = "http")))]
pub mod http;
#[cfg(feature = "object-store")]
#[cfg_attr(docsrs, doc(cfg(feature = "object-store")))]
pub mod objects;
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
