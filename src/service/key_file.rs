//! Cluster keys from the system's randomness and from files.

use crate::wire::secure::{ClusterKey, KeyError, Keyring};
use rand::TryRng as _;
use rand::rngs::SysRng;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The longest key file: eight keys with comments, many times over.
const MAX_FILE: u64 = 64 * 1024;

/// The reason why a key cannot be made or read. The error never contains a key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes for a key")]
    NoRandomness,
    /// The file cannot be read.
    #[error("key file {}: {source}", path.display())]
    Io {
        /// The path, as given.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// Other users may read or change the file.
    #[error(
        "key file {} has mode {mode:04o}: other users may use it; \
         set it to 0600, or 0640 for a group",
        path.display()
    )]
    Exposed {
        /// The path, as given.
        path: PathBuf,
        /// The permission bits of the file.
        mode: u32,
    },
    /// The file belongs to another user, and that user may put another key into it.
    #[error(
        "key file {} belongs to the user {owner}: make it root's, or that of the user of this \
         process",
        path.display()
    )]
    Foreign {
        /// The path, as given.
        path: PathBuf,
        /// The number of the user.
        owner: u32,
    },
    /// The file contains no keyring.
    #[error("key file {}: {source}", path.display())]
    Key {
        /// The path, as given.
        path: PathBuf,
        /// The error in the text.
        source: KeyError,
    },
}

impl ClusterKey {
    /// A new key, from the operating system's randomness.
    ///
    /// # Errors
    /// [`KeyFileError::NoRandomness`].
    pub fn generate() -> Result<Self, KeyFileError> {
        let mut bytes = Zeroizing::new([0; 32]);
        SysRng.try_fill_bytes(&mut *bytes).map_err(|_| KeyFileError::NoRandomness)?;
        // Random bytes are all the same once in 2^248 times.
        ClusterKey::from_bytes(&bytes).map_err(|_| KeyFileError::NoRandomness)
    }

    /// Writes the key to a new file with mode 0600, for [`Keyring::read_file`].
    ///
    /// Blocks for as long as the file system takes.
    ///
    /// # Errors
    /// [`KeyFileError::Io`]: the file exists, or cannot be written. An existing file is unchanged.
    pub fn write_file(&self, path: impl AsRef<Path>) -> Result<(), KeyFileError> {
        let path = path.as_ref();
        let mut options = File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let written = options.open(path).and_then(|mut file| {
            file.write_all(self.to_base64().as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()
        });
        written.map_err(|source| KeyFileError::Io { path: path.to_owned(), source })
    }
}

impl Keyring {
    /// Reads a key file: one key in base64 a line, the first seals. Empty lines and lines that
    /// begin with `#` are skipped. The file has to be root's, or that of the user of this process.
    /// Its owner and a group may read it, as mounted secrets of containers need; a file that other
    /// users can read is refused.
    ///
    /// Blocks for as long as the file system takes.
    ///
    /// # Errors
    /// [`KeyFileError`].
    pub fn read_file(path: impl AsRef<Path>) -> Result<Self, KeyFileError> {
        let path = path.as_ref();
        let failed = |source| KeyFileError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        // The opened file, so that no other file is read.
        let metadata = file.metadata().map_err(failed)?;
        check_rights(path, &metadata)?;
        let mut text =
            Zeroizing::new(String::with_capacity(metadata.len().min(MAX_FILE) as usize + 1));
        let length = file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(failed)?;
        if length as u64 > MAX_FILE {
            let error =
                io::Error::new(io::ErrorKind::InvalidData, "it is longer than any key file");
            return Err(failed(error));
        }
        Keyring::parse(&text).map_err(|source| KeyFileError::Key { path: path.to_owned(), source })
    }
}

#[cfg(unix)]
fn check_rights(path: &Path, metadata: &std::fs::Metadata) -> Result<(), KeyFileError> {
    use std::os::unix::fs::MetadataExt as _;
    let owner = metadata.uid();
    if ![0, rustix::process::geteuid().as_raw()].contains(&owner) {
        return Err(KeyFileError::Foreign { path: path.to_owned(), owner });
    }
    let mode = metadata.mode() & 0o7777;
    // A group that may write could replace the key.
    if mode & 0o027 == 0 {
        Ok(())
    } else {
        Err(KeyFileError::Exposed { path: path.to_owned(), mode })
    }
}

#[cfg(not(unix))]
fn check_rights(_path: &Path, _metadata: &std::fs::Metadata) -> Result<(), KeyFileError> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, chown};

    /// A key file of its own, removed when it is dropped.
    struct KeyFile(PathBuf);

    impl KeyFile {
        fn new(name: &str) -> KeyFile {
            let path =
                std::env::temp_dir().join(format!("elderlock-{}-{name}", std::process::id()));
            let _ = std::fs::remove_file(&path);
            ClusterKey::generate().expect("randomness").write_file(&path).expect("it is new");
            KeyFile(path)
        }
    }

    impl Drop for KeyFile {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_key_file_that_other_users_may_read_is_refused() {
        let file = KeyFile::new("mode");
        for (mode, is_read) in [(0o600, true), (0o640, true), (0o644, false), (0o660, false)] {
            let rights = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&file.0, rights).expect("it is ours");
            match Keyring::read_file(&file.0) {
                Ok(_) => assert!(is_read, "{mode:o}"),
                Err(KeyFileError::Exposed { mode: told, .. }) => {
                    assert!(!is_read && told == mode, "{mode:o}");
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn a_key_file_of_another_user_is_refused() {
        let file = KeyFile::new("owner");
        if chown(&file.0, Some(65_534), None).is_err() {
            return; // only root can give a file away
        }
        let error = Keyring::read_file(&file.0).expect_err("it is refused");
        assert!(matches!(error, KeyFileError::Foreign { owner: 65_534, .. }), "{error}");
    }
}
