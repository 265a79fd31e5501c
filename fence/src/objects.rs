//! Objects of an object store that are replaced only by a holder that is not stale, over the
//! `object_store` crate.
//!
//! The stamp of the last writer is in the object's metadata. A holder [reads](ObjectFence::read)
//! the object with its stamp and its version, and [replaces](Seen::replace) exactly that version by
//! a conditional put. So no update is lost: of two writers that have read one version, one fails
//! with [`ObjectError::Changed`]. The stamp decides which of them may try again. A holder that
//! finds a later stamp is stale ([`ObjectError::Stale`]); any other holder reads again.
//!
//! A read costs one request and changes nothing: the write proves that the read was fresh. So an
//! earlier holder may write until a later one has written. The later holder then gets `Changed`,
//! reads the earlier holder's write, and continues.
//!
//! | store of `object_store` 0.14 | works |
//! |---|---|
//! | `AmazonS3`, `GoogleCloudStorage`, `MicrosoftAzure` | by their documentation; not tested here |
//! | `InMemory` | yes |
//! | `LocalFileSystem` | no: it has neither metadata nor conditional updates. Calls that write fail with [`ObjectError::Unsupported`] and change nothing; use the feature `files` |
//!
//! A write without this module removes the stamp, and with it the fence, until the next holder
//! writes. So does a deletion: write an empty object instead.

use crate::stamp::{NoStamp, Stale, Stamp, stamp_for};
use bytes::Bytes;
use elderlock::{Fenced, Lost};
use object_store::path::Path;
use object_store::{
    Attribute, AttributeValue, Error, GetOptions, ObjectStore, PutMode, PutOptions, PutPayload,
    UpdateVersion,
};

/// The key of the stamp in the object's metadata. It is one word, because Azure accepts no hyphen
/// in it.
pub const METADATA_KEY: &str = "fencingtoken";

/// The objects of one store, behind a fence. The value is cheap to make: it borrows the store.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use elderlock_fence::objects::ObjectFence;
/// use object_store::{memory::InMemory, path::Path};
/// let member = elderlock::Member::local().await?;
/// let stock = member.lock_service("inventory").await?;
/// let (store, path) = (InMemory::new(), Path::from("stock/sku-42"));
/// let fence = ObjectFence::new(&store);
///
/// let guard = stock.lock("sku-42").await?;
/// let seen = fence.read(&path, &guard).await?;
/// assert_eq!(seen.content(), None);
/// seen.replace(&guard, "41").await?;
/// let seen = fence.read(&path, &guard).await?;
/// assert_eq!(seen.content().map(|content| &content[..]), Some(&b"41"[..]));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ObjectFence<'a> {
    store: &'a dyn ObjectStore,
}

impl<'a> ObjectFence<'a> {
    /// The objects of `store`.
    pub fn new(store: &'a dyn ObjectStore) -> ObjectFence<'a> {
        ObjectFence { store }
    }

    /// Reads an object for a holder that is to replace it, or finds that there is none yet.
    ///
    /// # Errors
    /// [`ObjectError`]. Nothing is changed by reading.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn read(
        &self,
        path: &Path,
        holder: &(impl Fenced + ?Sized),
    ) -> Result<Seen<'a>, ObjectError> {
        let shown = stamp_for(path.as_ref(), holder)?;
        let seen = self.look(path).await?;
        seen.check(shown)?;
        Ok(seen)
    }

    async fn look(&self, path: &Path) -> Result<Seen<'a>, ObjectError> {
        let found = match self.store.get_opts(path, GetOptions::default()).await {
            Ok(found) => found,
            Err(Error::NotFound { .. }) => {
                return Ok(Seen {
                    store: self.store,
                    path: path.clone(),
                    stamp: None,
                    found: None,
                });
            }
            Err(error) => return Err(error.into()),
        };
        let stamp = match found.attributes.get(&Attribute::Metadata(METADATA_KEY.into())) {
            Some(text) => Some(text.parse().map_err(|error: crate::InvalidStamp| {
                ObjectError::Damaged { path: path.clone(), reason: error.to_string() }
            })?),
            None => None,
        };
        let version =
            UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
        let content = found.bytes().await?;
        Ok(Seen { store: self.store, path: path.clone(), stamp, found: Some((content, version)) })
    }
}

/// A version of an object as a holder has read it, or the fact that there was none.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    store: &'a dyn ObjectStore,
    path: Path,
    stamp: Option<Stamp>,
    found: Option<(Bytes, UpdateVersion)>,
}

impl Seen<'_> {
    /// The content. `None` if there was no such object.
    pub fn content(&self) -> Option<&Bytes> {
        self.found.as_ref().map(|(content, _)| content)
    }

    /// The stamp of the object's last writer. `None` if there was no object, or it was written
    /// without a stamp.
    pub fn stamp(&self) -> Option<Stamp> {
        self.stamp
    }

    /// Replaces this version by `content` with the holder's stamp, if the version is still the
    /// latest. The object's other metadata is not kept.
    ///
    /// # Errors
    /// [`ObjectError`]. After [`ObjectError::Store`] the object may have been replaced: read again.
    /// After any other error nothing is changed.
    ///
    /// # Cancel safety
    /// A future that is dropped before its first poll changes nothing. If it is dropped later, the
    /// object may still be replaced.
    pub async fn replace(
        self,
        holder: &(impl Fenced + ?Sized),
        content: impl Into<PutPayload>,
    ) -> Result<(), ObjectError> {
        let shown = stamp_for(self.path.as_ref(), holder)?;
        // The caller may pass another holder than at the read.
        self.check(shown)?;
        let mode = self.found.map_or(PutMode::Create, |(_, version)| PutMode::Update(version));
        let mut options = PutOptions::from(mode);
        options.attributes.insert(
            Attribute::Metadata(METADATA_KEY.into()),
            AttributeValue::from(shown.to_string()),
        );
        match self.store.put_opts(&self.path, content.into(), options).await {
            Ok(_) => Ok(()),
            // `NotFound` means that the object was deleted since.
            Err(
                Error::Precondition { .. } | Error::AlreadyExists { .. } | Error::NotFound { .. },
            ) => {
                let now = ObjectFence::new(self.store).look(&self.path).await?;
                now.check(shown)?;
                Err(ObjectError::Changed { path: self.path })
            }
            Err(error) => Err(error.into()),
        }
    }

    fn check(&self, shown: Stamp) -> Result<(), ObjectError> {
        shown.check_after(self.stamp, || self.path.to_string()).map_err(ObjectError::Stale)
    }
}

/// Why an object is not read or replaced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The guard was lost before. Nothing was sent. Take the lock again.
    #[error("{0}; nothing was sent to the store: take the lock again")]
    Lost(Lost),
    /// The guard is a share or permits, or the path is longer than
    /// [`MAX_RESOURCE`](crate::MAX_RESOURCE) bytes. Nothing was sent.
    #[error(transparent)]
    NoStamp(NoStamp),
    /// A later holder has written the object. Nothing was changed: take the lock again.
    #[error(transparent)]
    Stale(Stale),
    /// The object was written since it was read, by an earlier holder, by this holder, or without a
    /// fence. Nothing was changed. Read it again and replace that version.
    #[error("{path} was written since it was read; read it again and replace that version")]
    Changed {
        /// The object.
        path: Path,
    },
    /// The metadata has a text that is not a stamp, so the latest writer is unknown. Nothing was
    /// changed.
    #[error(
        "the metadata `fencingtoken` of {path} is damaged: {reason}; stop all writers and write \
         the object anew"
    )]
    Damaged {
        /// The object.
        path: Path,
        /// The error in its stamp.
        reason: String,
    },
    /// The store cannot do what the fence needs: metadata and conditional puts. Nothing was
    /// changed.
    #[error("the store cannot fence objects: {0}; use a store with metadata and conditional puts")]
    Unsupported(#[source] Error),
    /// The store failed, or cannot be reached.
    #[error("the store failed: {0}")]
    Store(#[source] Error),
}

impl ObjectError {
    /// Returns whether the holder has lost the lock: it must take it again.
    pub fn is_lost(&self) -> bool {
        matches!(self, ObjectError::Lost(_) | ObjectError::Stale(_))
    }
}

impl From<NoStamp> for ObjectError {
    fn from(error: NoStamp) -> Self {
        match error {
            NoStamp::Lost(lost) => ObjectError::Lost(lost),
            other => ObjectError::NoStamp(other),
        }
    }
}

impl From<Error> for ObjectError {
    fn from(error: Error) -> Self {
        match error {
            Error::NotImplemented { .. } | Error::NotSupported { .. } => {
                ObjectError::Unsupported(error)
            }
            other => ObjectError::Store(other),
        }
    }
}
