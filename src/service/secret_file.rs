//! Files with secrets, which no other user may read or change.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The longest file: eight keys with comments, many times over.
const MAX_FILE: u64 = 64 * 1024;

/// Why the file of a secret is not read. The error never contains the secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretFileError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path, as given.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// Other users may read or change the file.
    #[error(
        "{} has mode {mode:04o}: other users may use it; set it to 0600, or 0640 for a group",
        path.display()
    )]
    Exposed {
        /// The path, as given.
        path: PathBuf,
        /// The permission bits of the file.
        mode: u32,
    },
    /// The file belongs to another user, which may put another secret into it.
    #[error(
        "{} belongs to the user {owner}: make it root's, or that of the user of this process",
        path.display()
    )]
    Foreign {
        /// The path, as given.
        path: PathBuf,
        /// The number of the user.
        owner: u32,
    },
}

/// Reads the text of a file with a secret, such as a password or the token of
/// [`HttpView::token`](crate::http::HttpView::token).
/// [`Keyring::read_file`](crate::Keyring::read_file) reads key files in the same way. The text is
/// overwritten when it is dropped.
///
/// The file has to be root's, or that of the user of this process. Its owner and a group may read
/// it, as mounted secrets of containers need; a file that other users can read or change is
/// refused. Systems other than Unix have no such modes, and nothing is checked there. The file has
/// at most 64 KiB of UTF-8.
///
/// Blocks for as long as the file system takes.
///
/// # Errors
/// [`SecretFileError`].
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let path = std::env::temp_dir().join(format!("elderlock-doc-{}", std::process::id()));
/// # let mut file = std::fs::File::options();
/// # file.write(true).create(true);
/// # #[cfg(unix)]
/// # std::os::unix::fs::OpenOptionsExt::mode(&mut file, 0o600);
/// # std::io::Write::write_all(&mut file.open(&path)?, b"secret\n")?;
/// let token = elderlock::read_secret_file(&path)?;
/// assert_eq!(token.trim(), "secret");
/// # std::fs::remove_file(&path)?;
/// # Ok(()) }
/// ```
#[cfg_attr(docsrs, doc(cfg(feature = "secure")))]
pub fn read_secret_file(path: impl AsRef<Path>) -> Result<Zeroizing<String>, SecretFileError> {
    let path = path.as_ref();
    let failed = |source| SecretFileError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    // The mode is that of the opened file, so that no other file is read.
    let metadata = file.metadata().map_err(failed)?;
    check_rights(path, &metadata)?;
    // The buffer has room for the whole text: a text that moves leaves a copy behind.
    let room = metadata.len().min(MAX_FILE) as usize + 1;
    let mut text = Zeroizing::new(String::with_capacity(room));
    let length = file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(failed)?;
    if length as u64 > MAX_FILE {
        let why = "it is longer than any file of a secret";
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, why)));
    }
    Ok(text)
}

#[cfg(unix)]
fn check_rights(path: &Path, metadata: &std::fs::Metadata) -> Result<(), SecretFileError> {
    use std::os::unix::fs::MetadataExt as _;
    let owner = metadata.uid();
    if ![0, rustix::process::geteuid().as_raw()].contains(&owner) {
        return Err(SecretFileError::Foreign { path: path.to_owned(), owner });
    }
    let mode = metadata.mode() & 0o7777;
    // A group with write access could replace the secret.
    if mode & 0o027 == 0 {
        Ok(())
    } else {
        Err(SecretFileError::Exposed { path: path.to_owned(), mode })
    }
}

#[cfg(not(unix))]
fn check_rights(_path: &Path, _metadata: &std::fs::Metadata) -> Result<(), SecretFileError> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, chown};

    /// A file of one test. Its drop removes the file.
    struct SecretFile(PathBuf);

    impl SecretFile {
        fn new(name: &str, text: &[u8]) -> SecretFile {
            let name = format!("elderlock-secret-{}-{name}", std::process::id());
            let file = SecretFile(std::env::temp_dir().join(name));
            std::fs::write(&file.0, text).expect("it can be written");
            file.set_mode(0o600);
            file
        }

        fn set_mode(&self, mode: u32) {
            let rights = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&self.0, rights).expect("it is ours");
        }

        fn refused(&self) -> SecretFileError {
            read_secret_file(&self.0).expect_err("it is refused")
        }
    }

    impl Drop for SecretFile {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_file_that_other_users_may_read_or_change_is_refused() {
        let file = SecretFile::new("mode", b"secret\n");
        for mode in [0o600, 0o640, 0o400, 0o440] {
            file.set_mode(mode);
            let text = read_secret_file(&file.0).expect("no other user may use it");
            assert_eq!(*text, "secret\n", "{mode:o}");
        }
        for mode in [0o604, 0o644, 0o660, 0o601, 0o602, 0o777] {
            file.set_mode(mode);
            let error = file.refused();
            assert!(
                matches!(error, SecretFileError::Exposed { mode: told, .. } if told == mode),
                "{mode:o}: {error}"
            );
            assert!(error.to_string().contains(&format!("mode {mode:04o}: ")), "{error}");
        }
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        let file = SecretFile::new("owner", b"secret");
        if chown(&file.0, Some(65_534), None).is_err() {
            return; // only root can give a file away
        }
        let error = file.refused();
        assert!(matches!(error, SecretFileError::Foreign { owner: 65_534, .. }), "{error}");
    }

    #[test]
    fn a_file_that_is_too_long_no_text_or_not_there_is_an_error_with_its_path() {
        let most = SecretFile::new("most", &vec![b'x'; MAX_FILE as usize]);
        let text = read_secret_file(&most.0).expect("it is as long as it may be");
        assert_eq!(text.len() as u64, MAX_FILE);
        let long = SecretFile::new("long", &vec![b'x'; MAX_FILE as usize + 1]);
        let bytes = SecretFile::new("bytes", &[0xff]);
        let gone = SecretFile::new("gone", b"");
        std::fs::remove_file(&gone.0).expect("it is there");
        for file in [&long, &bytes, &gone] {
            let error = file.refused();
            assert!(matches!(error, SecretFileError::Io { .. }), "{error}");
            assert!(error.to_string().starts_with(&file.0.display().to_string()), "{error}");
        }
    }
}
