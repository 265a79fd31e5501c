//! Object stores: the store in memory, and the local store, which cannot be fenced.

use super::rounds::{Plan, Refused, Shop, prove};
use super::{Folder, stamp};
use elderlock_fence::Stamp;
use elderlock_fence::objects::{METADATA_KEY, ObjectError, ObjectFence};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{Attribute, ObjectStore, PutOptions};
use std::time::Duration;

struct Objects(InMemory);

async fn get(store: &dyn ObjectStore, path: &Path) -> String {
    let content = store.get_opts(path, Default::default()).await.unwrap().bytes().await.unwrap();
    String::from_utf8(content.to_vec()).unwrap()
}

async fn put(store: &dyn ObjectStore, path: &Path, content: impl ToString) {
    store.put_opts(path, content.to_string().into(), PutOptions::default()).await.unwrap();
}

impl Shop for Objects {
    async fn fill(&self, article: &str, stock: i64) {
        put(&self.0, &Path::from(article), stock).await;
    }

    async fn stock(&self, article: &str) -> i64 {
        get(&self.0, &Path::from(article)).await.parse().unwrap()
    }

    async fn sell(
        &self,
        _: usize,
        article: &str,
        stamp: Stamp,
        plan: Plan,
        pause: impl Future<Output = ()> + Send,
    ) -> Result<(), Refused> {
        let path = Path::from(article);
        if !plan.fenced {
            let stock = self.stock(article).await;
            pause.await;
            put(&self.0, &path, stock - 1).await;
            return Ok(());
        }
        let seen = ObjectFence::new(&self.0).read(&path, &stamp).await.map_err(refused)?;
        let stock: i64 = std::str::from_utf8(seen.content().unwrap()).unwrap().parse().unwrap();
        pause.await;
        seen.replace(&stamp, (stock - 1).to_string()).await.map_err(refused)
    }
}

fn refused(error: ObjectError) -> Refused {
    match error {
        ObjectError::Stale(_) => Refused::Stale,
        ObjectError::Changed { .. } => Refused::Again,
        other => panic!("the store failed: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_lose_no_update() {
    prove("object_store", Objects(InMemory::new()), &[true]).await;
}

#[tokio::test]
async fn of_two_that_read_one_version_the_later_holder_reads_again() {
    let (store, path) = (InMemory::new(), Path::from("stock"));
    let fence = ObjectFence::new(&store);
    let (early, late) = (stamp(7, 1), stamp(8, 1));
    let seen = fence.read(&path, &early).await.unwrap();
    assert_eq!((seen.content(), seen.stamp()), (None, None));
    let by_late = fence.read(&path, &late).await.unwrap();
    seen.replace(&early, "10").await.unwrap();
    let error = by_late.replace(&late, "9").await.unwrap_err();
    assert!(matches!(error, ObjectError::Changed { .. }), "{error:?}");

    let (seen, by_late) =
        (fence.read(&path, &early).await.unwrap(), fence.read(&path, &late).await.unwrap());
    by_late.replace(&late, "9").await.unwrap();
    let error = seen.replace(&early, "8").await.unwrap_err();
    assert!(matches!(&error, ObjectError::Stale(stale) if stale.stored == Some(late)), "{error:?}");
    assert!(fence.read(&path, &early).await.unwrap_err().is_lost());
    assert!(fence.read(&path, &stamp(8, 2)).await.unwrap_err().is_lost());
    // The holder shows another stamp than at the read.
    let by_late = fence.read(&path, &late).await.unwrap();
    assert!(by_late.replace(&early, "7").await.unwrap_err().is_lost());
    assert_eq!(get(&store, &path).await, "9");
}

#[tokio::test]
async fn a_guard_that_is_lost_between_read_and_write_sends_nothing() {
    let (store, path) = (InMemory::new(), Path::from("stock"));
    let member = elderlock::Member::local().await.unwrap();
    let service = member.lock_service("inventory").await.unwrap();
    let guard = service.lock("stock").lease(Duration::from_millis(20)).await.unwrap();
    let seen = ObjectFence::new(&store).read(&path, &stamp(1, 1)).await.unwrap();
    guard.lost().await;
    assert!(matches!(seen.replace(&guard, "x").await, Err(ObjectError::Lost(_))));
    assert!(store.get_opts(&path, Default::default()).await.is_err());
}

#[tokio::test]
async fn metadata_that_is_no_stamp_admits_no_holder() {
    let (store, path) = (InMemory::new(), Path::from("stock"));
    let mut options = PutOptions::default();
    options.attributes.insert(Attribute::Metadata(METADATA_KEY.into()), "seven".into());
    store.put_opts(&path, "x".into(), options).await.unwrap();
    let error = ObjectFence::new(&store).read(&path, &stamp(8, 1)).await.unwrap_err();
    assert!(matches!(error, ObjectError::Damaged { .. }), "{error:?}");
}

/// If this test fails, the local store has gained the missing operations: update the table of
/// `objects`.
#[tokio::test]
async fn the_local_store_says_that_it_cannot_and_changes_nothing() {
    let folder = Folder::new("objects-local");
    let store = LocalFileSystem::new_with_prefix(&folder.0).unwrap();
    let (path, fence) = (Path::from("stock"), ObjectFence::new(&store));
    let absent = fence.read(&path, &stamp(7, 1)).await.unwrap();
    let error = absent.replace(&stamp(7, 1), "9").await.unwrap_err();
    assert!(matches!(error, ObjectError::Unsupported(_)), "{error:?}");
    assert!(!folder.path("stock").exists());
    put(&store, &path, 10).await;
    let seen = fence.read(&path, &stamp(7, 1)).await.unwrap();
    let error = seen.replace(&stamp(7, 1), "9").await.unwrap_err();
    assert!(matches!(error, ObjectError::Unsupported(_)), "{error:?}");
    assert_eq!(get(&store, &path).await, "10");
}
