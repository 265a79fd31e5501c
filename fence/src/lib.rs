//! Checks the fencing tokens of [`elderlock`] where the writes happen: in SQL databases, object
//! stores, HTTP services and files.
//!
//! A lock alone cannot stop a process that slept through its lease. It wakes up, believes that it
//! has the lock, and writes over what the next holder wrote. Each grant has a token that is higher
//! than those before it. A resource that refuses lower tokens is safe under any clock error. This
//! crate implements that refusal for the resources that programs use.
//!
//! | resource | call | feature |
//! |---|---|---|
//! | PostgreSQL | [`Fence::admit`] | `tokio-postgres`, or `sqlx-postgres` |
//! | SQLite | `Fence::admit_blocking`, [`Fence::admit`] | `rusqlite`, or `sqlx-sqlite` |
//! | MariaDB, MySQL | [`Fence::admit`] | `sqlx-mysql` |
//! | another driver | the statements in [`sql`] | none |
//! | objects of S3, GCS, Azure, ... | `objects::ObjectFence` | `object-store` |
//! | an HTTP service | `http::FenceLayer` | `http`, and `rusqlite` for its store |
//! | a file | `files::FencedFile` | `files` (Unix) |
//! | a value of the program | [`elderlock::TokenGate`] | none |
//!
//! No feature is on by default: a program pulls in its own driver and no other.
//!
//! # Rules
//! - **The fence comes first.** A read that a write follows from is fenced, too: see [`sql`].
//! - **One lock name for each resource.** Tokens of two names, or of two services, cannot be
//!   compared. A resource that is written under two locks is not fenced.
//! - **Every writer shows its token.** One writer that does not is enough to lose an update.
//! - **Shares and permits have no order.** Fence with an exclusive lock: [`NoStamp::Shared`]
//!   refuses the rest.
//! - Of a [`BatchGuard`](elderlock::BatchGuard) or a [`MultiGuard`](elderlock::MultiGuard) make the
//!   [`Stamp`] of the name: its `fence(name)` and its lineage.
//!
//! A writer shows a [`Stamp`] to a resource: the token and its lineage. Two lineages that live at
//! once, for example after an operator's `force`, may deal equal tokens. The resource refuses an
//! equal token of another lineage.
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

/// The code of the guide's chapter, as doctests.
#[cfg(all(doctest, feature = "tokio-postgres"))]
#[doc = include_str!("../../docs/guide/fencing.md")]
struct Fencing;
