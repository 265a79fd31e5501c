//! Fenced files, between threads and processes.

use super::rounds::{Plan, Refused, Shop, prove};
use super::{Folder, stamp};
use elderlock_fence::Stamp;
use elderlock_fence::files::{FencedFile, FileError};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::task::block_in_place;

struct Files(Folder);

impl Files {
    fn path(&self, article: &str) -> PathBuf {
        self.0.path(article)
    }
}

fn number(content: &[u8]) -> i64 {
    std::str::from_utf8(content).unwrap().parse().unwrap()
}

impl Shop for Files {
    async fn fill(&self, article: &str, stock: i64) {
        std::fs::write(self.path(article), stock.to_string()).unwrap();
    }

    async fn stock(&self, article: &str) -> i64 {
        number(&std::fs::read(self.path(article)).unwrap())
    }

    async fn sell(
        &self,
        _: usize,
        article: &str,
        stamp: Stamp,
        plan: Plan,
        pause: impl Future<Output = ()> + Send,
    ) -> Result<(), Refused> {
        let path = self.path(article);
        if !plan.fenced {
            let stock = number(&block_in_place(|| std::fs::read(&path)).unwrap());
            pause.await;
            // The file is replaced and not overwritten: a reader would see an empty file otherwise.
            let new = path.with_extension(stamp.token.to_string());
            std::fs::write(&new, (stock - 1).to_string()).unwrap();
            std::fs::rename(new, path).unwrap();
            return Ok(());
        }
        let file = FencedFile::new(path).wait(Duration::from_secs(60));
        let content = block_in_place(|| file.read(&stamp)).map_err(refused)?;
        let stock = number(&content.expect("the file is there"));
        pause.await;
        block_in_place(|| file.replace(&stamp, (stock - 1).to_string().as_bytes())).map_err(refused)
    }
}

fn refused(error: FileError) -> Refused {
    assert!(matches!(error, FileError::Stale(_)), "{error:?}");
    Refused::Stale
}

#[tokio::test(flavor = "multi_thread")]
async fn files_lose_no_update() {
    prove("files", Files(Folder::new("files")), &[true]).await;
}

#[test]
fn files_left_by_a_crash_are_replaced_and_admit_no_earlier_holder() {
    let folder = Folder::new("files-crash");
    let file = FencedFile::new(folder.path("stock"));
    file.replace(&stamp(7, 1), b"old").unwrap();
    // A holder with token 9 recorded its stamp, and its machine failed while it wrote.
    std::fs::write(folder.path(".stock.fence"), format!("{}\n", stamp(9, 1))).unwrap();
    std::fs::write(folder.path(".stock.new"), "ha").unwrap();
    let error = file.replace(&stamp(8, 1), b"late").unwrap_err();
    assert!(
        matches!(&error, FileError::Stale(stale) if stale.stored == Some(stamp(9, 1))),
        "{error:?}"
    );
    assert_eq!(file.read(&stamp(9, 1)).unwrap().unwrap(), b"old");
    file.replace(&stamp(9, 1), b"new").unwrap();
    assert_eq!(std::fs::read(folder.path("stock")).unwrap(), b"new");
    assert!(!folder.path(".stock.new").exists());
}

#[test]
fn a_damaged_fence_admits_no_holder_and_says_what_to_do() {
    let folder = Folder::new("files-damaged");
    let file = FencedFile::new(folder.path("stock"));
    for text in ["", "7", "7-zz"] {
        std::fs::write(folder.path(".stock.fence"), text).unwrap();
        let error = file.replace(&stamp(8, 1), b"x").unwrap_err();
        assert!(
            matches!(error, FileError::Damaged { .. })
                && error.to_string().contains("stop all writers")
        );
        assert!(!folder.path("stock").exists());
    }
}

#[cfg(unix)]
#[test]
fn a_replaced_file_keeps_its_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("files-mode");
    let file = FencedFile::new(folder.path("stock"));
    file.replace(&stamp(7, 1), b"a").unwrap();
    std::fs::set_permissions(folder.path("stock"), std::fs::Permissions::from_mode(0o640)).unwrap();
    file.replace(&stamp(8, 1), b"b").unwrap();
    assert_eq!(
        std::fs::metadata(folder.path("stock")).unwrap().permissions().mode() & 0o777,
        0o640
    );
}

/// A second process has stopped within a call.
#[test]
fn a_call_of_another_process_is_waited_for_up_to_the_limit() {
    let folder = Folder::new("files-process");
    let file = FencedFile::new(folder.path("stock")).wait(Duration::from_millis(20));
    file.replace(&stamp(7, 1), b"a").unwrap();
    let mut other = Command::new("flock")
        .arg(folder.path(".stock.lock"))
        .args(["sh", "-c", "echo locked; read line; true"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("flock of util-linux is there");
    let mut line = String::new();
    BufReader::new(other.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "locked\n");
    let error = file.read(&stamp(8, 1)).unwrap_err();
    assert!(matches!(error, FileError::Locked { .. }), "{error:?}");
    let patient = file.clone().wait(Duration::from_secs(60));
    let waiting = std::thread::spawn(move || patient.replace(&stamp(8, 1), b"b"));
    other.stdin.take().unwrap().write_all(b"\n").unwrap();
    waiting.join().unwrap().unwrap();
    other.wait().unwrap();
    assert_eq!(std::fs::read(folder.path("stock")).unwrap(), b"b");
}

#[tokio::test]
async fn a_file_is_not_touched_by_a_lost_guard_or_a_share() {
    let folder = Folder::new("files-lost");
    let file = FencedFile::new(folder.path("stock"));
    let member = elderlock::Member::local().await.unwrap();
    let service = member.lock_service("inventory").await.unwrap();
    let share = service.share("stock").await.unwrap();
    assert!(matches!(file.replace(&share, b"x"), Err(FileError::NoStamp(_))));
    drop(share);
    let guard = service.lock("stock").lease(Duration::from_millis(5)).await.unwrap();
    guard.lost().await;
    assert!(matches!(file.replace(&guard, b"x"), Err(FileError::Lost(_))));
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
    let missing =
        FencedFile::new(folder.path("no/such/stock")).replace(&stamp(1, 1), b"x").unwrap_err();
    assert!(matches!(missing, FileError::Io { action: "open", .. }), "{missing:?}");
}
