//! Plants breaks in a copy of this repository, all behind one switch, so that one build serves them
//! all:
//!
//! - a comparison becomes its neighbour: `<` and `<=`, `>` and `>=`, `==` and `!=`;
//! - a number 0, 1 or 2 becomes the number beside it;
//! - a statement is left out.
//!
//! Every site of that kind is found; a sequence of numbers from a fixed start chooses which of
//! them are planted. The list says what was planted where, and is kept in the repository:
//! `elderlock-sim drawn` in the copy tries one after the other.

use proc_macro2::Span;
use quote::ToTokens;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs, io};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, BinOp, Expr, ExprLit, ImplItem, Item, Lit, Stmt, parse_quote};

/// The files, below the folder of the core.
const FILES: [&str; 18] = [
    "cluster/lease.rs",
    "cluster/decision.rs",
    "link.rs",
    "link/detour.rs",
    "locks/grantor.rs",
    "locks/grantor/recovery.rs",
    "locks/grantor/revalidation.rs",
    "locks/grantor/revalidation_answers.rs",
    "locks/grantor/transfer.rs",
    "locks/table.rs",
    "locks/table/holders.rs",
    "locks/table/line.rs",
    "locks/table/objects.rs",
    "locks/table/occupancy.rs",
    "locks/table/questions.rs",
    "locks/table/queues.rs",
    "locks/table/request.rs",
    "locks/table/requests.rs",
];
/// How many breaks are planted.
const COUNT: usize = 440;
/// The start of the sequence that chooses them.
const SEED: u64 = 20_261_123;

/// A site where something can be broken.
struct MutationSite {
    file: &'static str,
    line: usize,
    what: String,
}

/// Goes through a file, numbers all sites, and plants those that are chosen.
struct MutationPlanter<'a> {
    file: &'static str,
    found: &'a mut Vec<MutationSite>,
    /// The number of the break that is planted at each site.
    chosen: &'a [Option<usize>],
}

impl MutationPlanter<'_> {
    /// The number of the break at the next site, if one is planted there.
    fn next(&mut self, span: Span, what: String) -> Option<usize> {
        let chosen = self.chosen.get(self.found.len()).copied().flatten();
        self.found.push(MutationSite { file: self.file, line: span.start().line, what });
        chosen
    }
}

/// Returns whether code with these attributes does not ship.
fn is_left_out(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("cfg"))
}

/// The comparison beside this comparison.
fn neighbour(op: &BinOp) -> Option<BinOp> {
    Some(match op {
        BinOp::Lt(_) => parse_quote!(<=),
        BinOp::Le(_) => parse_quote!(<),
        BinOp::Gt(_) => parse_quote!(>=),
        BinOp::Ge(_) => parse_quote!(>),
        BinOp::Eq(_) => parse_quote!(!=),
        BinOp::Ne(_) => parse_quote!(==),
        _ => return None,
    })
}

/// Returns whether a statement may be left out: its only purpose is its effect.
fn may_be_left_out(expr: &Expr) -> bool {
    match expr {
        Expr::MethodCall(_) | Expr::Call(_) | Expr::Assign(_) => true,
        Expr::Binary(binary) => matches!(
            binary.op,
            BinOp::AddAssign(_)
                | BinOp::SubAssign(_)
                | BinOp::BitOrAssign(_)
                | BinOp::BitAndAssign(_)
        ),
        _ => false,
    }
}

/// Returns the tokens in one line, and not too long.
fn words(tokens: &impl ToTokens) -> String {
    let text: String =
        tokens.to_token_stream().to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    text.chars().take(90).collect()
}

impl VisitMut for MutationPlanter<'_> {
    fn visit_item_mut(&mut self, item: &mut Item) {
        match item {
            Item::Const(_) | Item::Static(_) | Item::Macro(_) => {}
            Item::Mod(item) if is_left_out(&item.attrs) => {}
            Item::Impl(item) if is_left_out(&item.attrs) => {}
            Item::Fn(item) if is_left_out(&item.attrs) => {}
            item => visit_mut::visit_item_mut(self, item),
        }
    }

    fn visit_impl_item_mut(&mut self, item: &mut ImplItem) {
        match item {
            ImplItem::Const(_) => {}
            ImplItem::Fn(item) if is_left_out(&item.attrs) => {}
            item => visit_mut::visit_impl_item_mut(self, item),
        }
    }

    fn visit_type_mut(&mut self, _: &mut syn::Type) {}

    fn visit_pat_mut(&mut self, _: &mut syn::Pat) {}

    fn visit_expr_repeat_mut(&mut self, repeat: &mut syn::ExprRepeat) {
        self.visit_expr_mut(&mut repeat.expr);
    }

    fn visit_stmt_mut(&mut self, stmt: &mut Stmt) {
        let what = format!("leave out {}", words(stmt));
        visit_mut::visit_stmt_mut(self, stmt);
        if let Stmt::Expr(expr, Some(_)) = stmt
            && may_be_left_out(expr)
            && let Some(number) = self.next(expr.span(), what)
        {
            *stmt = parse_quote!(if !crate::protocol::drawn::is(#number) { #expr; });
        }
    }

    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        let text = words(expr);
        visit_mut::visit_expr_mut(self, expr);
        match expr {
            Expr::Binary(binary) if neighbour(&binary.op).is_some() => {
                let Some(op) = neighbour(&binary.op) else { return };
                let what = format!("{text} with {}", words(&op));
                if let Some(number) = self.next(binary.span(), what) {
                    let other = syn::ExprBinary { op, ..binary.clone() };
                    *expr = drawn(number, &other, binary);
                }
            }
            Expr::Lit(ExprLit { lit: Lit::Int(int), .. }) if int.suffix().is_empty() => {
                let Ok(value @ 0..=2) = int.base10_parse::<u64>() else { return };
                let other = if value == 0 { 1 } else { value - 1 };
                if let Some(number) = self.next(int.span(), format!("{value} becomes {other}")) {
                    let other = proc_macro2::Literal::u64_unsuffixed(other);
                    *expr = drawn(number, &other, int);
                }
            }
            _ => {}
        }
    }
}

/// An expression that is `other` while the break `number` is on.
fn drawn(number: usize, other: &impl ToTokens, original: &impl ToTokens) -> Expr {
    parse_quote!((if crate::protocol::drawn::is(#number) { #other } else { #original }))
}

/// Plants the chosen breaks in all files. Returns all sites, and the text of each file.
fn plant(core: &Path, chosen: &[Option<usize>]) -> io::Result<(Vec<MutationSite>, Vec<String>)> {
    let (mut found, mut texts) = (Vec::new(), Vec::new());
    for file in FILES {
        let text = fs::read_to_string(core.join(file))?;
        let mut parsed =
            syn::parse_file(&text).map_err(|error| io::Error::other(format!("{file}: {error}")))?;
        MutationPlanter { file, found: &mut found, chosen }.visit_file_mut(&mut parsed);
        texts.push(parsed.to_token_stream().to_string());
    }
    Ok((found, texts))
}

/// Returns the number of the break that is planted at each site.
fn choose(sites: usize) -> Vec<Option<usize>> {
    let mut state = SEED;
    let mut order: Vec<usize> = (0..sites).collect();
    for last in (1..sites).rev() {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, (state >> 33) as usize % (last + 1));
    }
    order.truncate(COUNT);
    order.sort_unstable();
    let mut chosen = vec![None; sites];
    order.into_iter().zip(1..).for_each(|(site, number)| chosen[site] = Some(number));
    chosen
}

/// The switch.
const SWITCH: &str = "//! Which of the drawn defects is on; 0: none.
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
/// Begins with the number in the environment: so tests run with a break.
static ON: LazyLock<AtomicUsize> = LazyLock::new(|| {
    let number = std::env::var(\"DRAWN\").ok().and_then(|number| number.parse().ok());
    AtomicUsize::new(number.unwrap_or(0))
});
static MET: AtomicUsize = AtomicUsize::new(0);
pub(crate) fn is(number: usize) -> bool {
    let is_on = ON.load(Relaxed) == number;
    if is_on {
        MET.fetch_add(1, Relaxed);
    }
    is_on
}
/// Switches one on, and returns how often the break before it was come to.
pub fn switch(number: usize) -> usize {
    ON.store(number, Relaxed);
    MET.swap(0, Relaxed)
}
";

fn run(from: &Path, to: &Path, list: &Path) -> io::Result<()> {
    let files = Command::new("git").args(["ls-files", "-z"]).current_dir(from).output()?.stdout;
    for file in String::from_utf8_lossy(&files).split('\0').filter(|file| !file.is_empty()) {
        let (source, target) = (from.join(file), to.join(file));
        fs::create_dir_all(target.parent().unwrap_or(to))?;
        let text = fs::read(source)?;
        // An unchanged file keeps its time, so that it is not built again.
        if fs::read(&target).ok().as_ref() != Some(&text) {
            fs::write(target, text)?;
        }
    }
    let core = from.join("src/protocol");
    let sites = plant(&core, &[])?.0.len();
    let chosen = choose(sites);
    let (found, texts) = plant(&core, &chosen)?;
    for (file, text) in FILES.iter().zip(texts) {
        fs::write(to.join("src/protocol").join(file), text)?;
    }
    fs::write(to.join("src/protocol/drawn.rs"), SWITCH)?;
    let module = fs::read_to_string(core.join("mod.rs"))?;
    fs::write(
        to.join("src/protocol/mod.rs"),
        module.replace("\npub mod event;", "\npub mod drawn;\npub mod event;"),
    )?;
    let mut text = String::new();
    for (found, number) in found.iter().zip(&chosen) {
        if let Some(number) = number {
            text += &format!("{number}\t{}:{}\t{}\n", found.file, found.line, found.what);
        }
    }
    fs::write(list, &text)?;
    println!("{} of {sites} sites in {}", text.lines().count(), to.display());
    Ok(())
}

fn main() -> ExitCode {
    let paths: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let [from, to, list] = paths.as_slice() else {
        eprintln!("usage: elderlock-drawn REPOSITORY COPY LIST");
        return ExitCode::from(2);
    };
    match run(from, to, list) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", from.display());
            ExitCode::FAILURE
        }
    }
}
