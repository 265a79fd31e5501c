//! Cluster keys from the system's randomness and from files.

use super::secret_file::{SecretFileError, read_secret_file};
use crate::wire::secure::{ClusterKey, KeyError, Keyring};
use rand::TryRng as _;
use rand::rngs::SysRng;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Why a key cannot be made or read. The error never contains a key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes for a key")]
    NoRandomness,
    /// The file cannot be read or written, or other users may use it.
    #[error("key file {0}")]
    File(#[from] SecretFileError),
    /// The file contains no keyring.
    #[error("key file {}: {source}", path.display())]
    Key {
        /// The path, as given.
        path: PathBuf,
        /// The defect of the text.
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
        // Only an all-equal key is refused, which random bytes are once in 2^248 times.
        ClusterKey::from_bytes(&bytes).map_err(|_| KeyFileError::NoRandomness)
    }

    /// Writes the key to a new file with mode 0600, for [`Keyring::read_file`].
    ///
    /// Blocks for as long as the file system takes.
    ///
    /// # Errors
    /// [`KeyFileError::File`]: the file exists, or cannot be written. An existing file is
    /// unchanged.
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
        written.map_err(|source| SecretFileError::Io { path: path.to_owned(), source }.into())
    }
}

impl Keyring {
    /// Reads a key file: one key in base64 a line, of which the first seals. Empty lines and lines
    /// that begin with `#` are skipped. The file needs the owner and the mode that
    /// [`read_secret_file`] requires.
    ///
    /// Blocks for as long as the file system takes.
    ///
    /// # Errors
    /// [`KeyFileError`].
    pub fn read_file(path: impl AsRef<Path>) -> Result<Self, KeyFileError> {
        let path = path.as_ref();
        let text = read_secret_file(path)?;
        Keyring::parse(&text).map_err(|source| KeyFileError::Key { path: path.to_owned(), source })
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_key_file_that_other_users_may_read_is_refused() {
        let name = format!("elderlock-{}-key", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        let key = ClusterKey::generate().expect("randomness");
        key.write_file(&path).expect("it is new");
        let again = key.write_file(&path);
        let read = Keyring::read_file(&path);
        let rights = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(&path, rights).expect("it is ours");
        let exposed = Keyring::read_file(&path);
        std::fs::remove_file(&path).expect("it is there");

        assert!(read.expect("its mode is 0600").has(key.name()));
        let error = exposed.expect_err("it is refused");
        let is_exposed =
            matches!(error, KeyFileError::File(SecretFileError::Exposed { mode: 0o644, .. }));
        assert!(is_exposed && error.to_string().starts_with("key file /"), "{error}");
        assert!(matches!(again, Err(KeyFileError::File(SecretFileError::Io { .. }))));
    }
}
