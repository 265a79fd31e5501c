//! Each adapter against real resources: servers of the distribution, files, stores.

mod documents;
mod files;
mod http;
mod mariadb;
mod objects;
mod postgres;
mod rounds;
mod server;
mod sqlite;
mod values;

use elderlock::{LineageId, Token};
use elderlock_fence::Stamp;

/// A stamp without a lock, for tests that need none.
fn stamp(token: i64, lineage: i64) -> Stamp {
    Stamp {
        token: Token::try_from(token).expect("a token is positive"),
        lineage: LineageId::from_i64(lineage),
    }
}

/// A temporary folder, removed at the end.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder =
            std::env::temp_dir().join(format!("elderlock-fence-{name}-{}", std::process::id()));
        // A killed process with this number may have left its own.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a temporary folder can be made");
        Folder(folder)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
