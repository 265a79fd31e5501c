//! The shop's books: one SQLite file that all workers write.
//!
//! A sale takes two transactions, as in many a shop. One reads the stock, and after some thought
//! another writes that stock back, less one. So two sellers of one article sell the same piece
//! twice, unless a lock keeps them apart. A seller that wakes up too late overwrites the sales of
//! others, unless the table checks the fencing token.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use std::path::Path;
use std::time::Duration;

/// Pieces of each article at the start: more than can be sold in the longest demo.
pub(crate) const INITIAL_STOCK: i64 = 100_000;

/// An open connection to the books.
pub(crate) struct Shop {
    file: Connection,
    /// Whether the table refuses tokens lower than the highest one so far, and an equal token of
    /// another lineage.
    fenced: bool,
}

/// The fence of a write: the holder's token as SQL stores it, and its lineage. Both are zero
/// without a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Fence {
    pub(crate) token: i64,
    pub(crate) lineage: i64,
}

/// The result of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteResult {
    /// The sale is in the file.
    Sold,
    /// The table had a higher token already: nothing was sold.
    Refused,
}

/// The state of the books at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Audit {
    /// Sales in the file.
    pub(crate) sales: i64,
    /// The difference of sales and missing stock, by lost updates and sales beyond the stock.
    pub(crate) oversold: i64,
    /// Pieces sold more than once.
    pub(crate) double_sales: i64,
    /// Writes refused because their token was too low.
    pub(crate) stale_refused: i64,
    /// Writes that the table accepted after one with a higher token.
    pub(crate) stale_written: i64,
}

impl Shop {
    /// Creates the file with the initial stock.
    pub(crate) fn create(path: &Path, articles: u32) -> rusqlite::Result<()> {
        let shop = Shop::open(path, true)?;
        shop.file.execute_batch(
            "CREATE TABLE articles (id INTEGER PRIMARY KEY,
                                    stock INTEGER NOT NULL, sold INTEGER NOT NULL DEFAULT 0,
                                    fence INTEGER NOT NULL DEFAULT 0,
                                    lineage INTEGER NOT NULL DEFAULT 0);
             CREATE TABLE sales (id INTEGER PRIMARY KEY AUTOINCREMENT,
                                 article INTEGER NOT NULL, piece INTEGER NOT NULL,
                                 worker INTEGER NOT NULL, token INTEGER NOT NULL);
             CREATE TABLE refusals (id INTEGER PRIMARY KEY,
                                    article INTEGER NOT NULL, worker INTEGER NOT NULL,
                                    token INTEGER NOT NULL, fence INTEGER NOT NULL);",
        )?;
        for article in 0..articles {
            shop.file.execute(
                "INSERT INTO articles (id, stock) VALUES (?, ?)",
                params![article, INITIAL_STOCK],
            )?;
        }
        Ok(())
    }

    /// Opens the file.
    pub(crate) fn open(path: &Path, fenced: bool) -> rusqlite::Result<Shop> {
        let file = Connection::open(path)?;
        file.busy_timeout(Duration::from_secs(10))?;
        file.pragma_update(None, "journal_mode", "wal")?;
        // Survives a killed process, not a power cut.
        file.pragma_update(None, "synchronous", "normal")?;
        Ok(Shop { file, fenced })
    }

    /// First transaction: reads how many pieces are left.
    pub(crate) fn stock(&self, article: u32) -> rusqlite::Result<i64> {
        self.file
            .prepare_cached("SELECT stock FROM articles WHERE id = ?")?
            .query_row(params![article], |row| row.get(0))
    }

    /// Second transaction: writes one piece less than was read.
    pub(crate) fn sell(
        &mut self,
        article: u32,
        stock_read: i64,
        worker: u32,
        hold: Fence,
    ) -> rusqlite::Result<WriteResult> {
        let Fence { token, lineage } = hold;
        let write = self.file.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let update = if self.fenced {
            "UPDATE articles SET stock = ?2, sold = sold + 1, fence = ?3, lineage = ?4
              WHERE id = ?1 AND (fence < ?3 OR (fence = ?3 AND lineage = ?4))"
        } else {
            "UPDATE articles SET stock = ?2, sold = sold + 1, fence = max(fence, ?3), lineage = ?4
              WHERE id = ?1"
        };
        let changed = write.prepare_cached(update)?.execute(params![
            article,
            stock_read - 1,
            token,
            lineage
        ])?;
        let written = if changed == 1 {
            write
                .prepare_cached(
                    "INSERT INTO sales (article, piece, worker, token) VALUES (?, ?, ?, ?)",
                )?
                .execute(params![article, stock_read, worker, token])?;
            WriteResult::Sold
        } else {
            write.execute(
                "INSERT INTO refusals (article, worker, token, fence)
                   SELECT id, ?2, ?3, fence FROM articles WHERE id = ?1",
                params![article, worker, token],
            )?;
            WriteResult::Refused
        };
        write.commit()?;
        Ok(written)
    }

    /// Counts the content of the file, without trust in any report.
    pub(crate) fn audit(&self) -> rusqlite::Result<Audit> {
        let number = |query: &str| -> rusqlite::Result<i64> {
            Ok(self
                .file
                .query_row(query, [], |row| row.get::<_, Option<i64>>(0))
                .optional()?
                .flatten()
                .unwrap_or(0))
        };
        let taken = format!("({INITIAL_STOCK} - stock)");
        let sold = "(SELECT count(*) FROM sales WHERE article = articles.id)";
        Ok(Audit {
            sales: number("SELECT count(*) FROM sales")?,
            oversold: number(&format!(
                "SELECT sum(abs({sold} - {taken}) + max(0, {sold} - {INITIAL_STOCK})) FROM articles"
            ))?,
            double_sales: number(
                "SELECT sum(times - 1)
                   FROM (SELECT count(*) AS times FROM sales GROUP BY article, piece)",
            )?,
            stale_refused: number("SELECT count(*) FROM refusals WHERE token <= fence")?,
            stale_written: number(
                "SELECT count(*)
                   FROM (SELECT token, max(token) OVER (PARTITION BY article ORDER BY id
                     ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM sales)
                   WHERE token < before",
            )?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shop in a file of its own, removed at the end.
    struct Books(std::path::PathBuf);

    impl Books {
        fn new(name: &str) -> Books {
            let path =
                std::env::temp_dir().join(format!("elderlock-books-{}-{name}", std::process::id()));
            Shop::create(&path, 2).expect("the books can be made");
            Books(path)
        }
    }

    impl Drop for Books {
        fn drop(&mut self) {
            for end in ["", "-wal", "-shm"] {
                let _ = std::fs::remove_file(format!("{}{end}", self.0.display()));
            }
        }
    }

    #[test]
    fn sales_one_after_the_other_balance() {
        let books = Books::new("balance");
        let mut shop = Shop::open(&books.0, true).unwrap();
        for token in 1..=3 {
            let stock = shop.stock(0).unwrap();
            assert_eq!(shop.sell(0, stock, 1, of_one(token)).unwrap(), WriteResult::Sold);
        }
        assert_eq!(shop.audit().unwrap(), Audit { sales: 3, ..Audit::default() });
    }

    #[test]
    fn two_sellers_at_a_time_are_found_out() {
        let books = Books::new("double");
        let (mut one, mut two) =
            (Shop::open(&books.0, true).unwrap(), Shop::open(&books.0, true).unwrap());
        let (first, second) = (one.stock(0).unwrap(), two.stock(0).unwrap());
        assert_eq!(one.sell(0, first, 1, Fence::default()).unwrap(), WriteResult::Sold);
        assert_eq!(two.sell(0, second, 2, Fence::default()).unwrap(), WriteResult::Sold);
        let audit = shop_audit(&books);
        assert_eq!((audit.sales, audit.oversold, audit.double_sales), (2, 1, 1));
    }

    #[test]
    fn a_late_write_with_a_lower_token_is_refused() {
        let books = Books::new("late");
        let (mut late, mut next) =
            (Shop::open(&books.0, true).unwrap(), Shop::open(&books.0, true).unwrap());
        let read = late.stock(1).unwrap();
        assert_eq!(next.sell(1, read, 2, of_one(8)).unwrap(), WriteResult::Sold);
        assert_eq!(late.sell(1, read, 1, of_one(7)).unwrap(), WriteResult::Refused);
        assert_eq!(shop_audit(&books), Audit { sales: 1, stale_refused: 1, ..Audit::default() });
    }

    #[test]
    fn a_table_that_does_not_look_at_tokens_is_written_late() {
        let books = Books::new("unfenced");
        let (mut late, mut next) =
            (Shop::open(&books.0, false).unwrap(), Shop::open(&books.0, false).unwrap());
        let read = late.stock(1).unwrap();
        assert_eq!(next.sell(1, read, 2, of_one(8)).unwrap(), WriteResult::Sold);
        assert_eq!(late.sell(1, read, 1, of_one(7)).unwrap(), WriteResult::Sold);
        let audit = shop_audit(&books);
        assert_eq!((audit.stale_written, audit.oversold, audit.double_sales), (1, 1, 1));
    }

    /// Two lineages that live at once may deal equal tokens: the second holder is refused.
    #[test]
    fn an_equal_token_of_another_lineage_is_refused() {
        let books = Books::new("lineages");
        let mut shop = Shop::open(&books.0, true).unwrap();
        assert_eq!(shop.sell(1, INITIAL_STOCK, 1, of_one(7)).unwrap(), WriteResult::Sold);
        assert_eq!(shop.sell(1, INITIAL_STOCK - 1, 1, of_one(7)).unwrap(), WriteResult::Sold);
        let other = Fence { token: 7, lineage: 2 };
        assert_eq!(shop.sell(1, INITIAL_STOCK - 2, 2, other).unwrap(), WriteResult::Refused);
        assert_eq!(shop_audit(&books), Audit { sales: 2, stale_refused: 1, ..Audit::default() });
    }

    fn of_one(token: i64) -> Fence {
        Fence { token, lineage: 1 }
    }

    fn shop_audit(books: &Books) -> Audit {
        Shop::open(&books.0, true).unwrap().audit().unwrap()
    }
}
