//! Adding and removing names, compared with a plain tree, and the state of the filters meanwhile.

use super::*;
use crate::protocol::chance::draws;
use std::hash::DefaultHasher;

/// A number of names for many pages.
const MANY: u64 = 20_000;

fn name(number: u64) -> LockName {
    LockName::new(format!("name-{number:011}").as_bytes()).expect("a good name")
}

fn put(names: &mut NameMap<u64>, number: u64) -> bool {
    names.put(&name(number), || number, |_| false)
}

fn take(names: &mut NameMap<u64>, number: u64) {
    names.take(&name(number), |_| true);
}

/// A map of `count` names with even numbers.
fn names_of(count: u64) -> NameMap<u64> {
    let mut names = NameMap::new();
    (0..count).for_each(|number| assert!(put(&mut names, 2 * number)));
    names
}

impl NameMap<u64> {
    /// The number of allocated pages of all filters.
    fn pages(&self) -> usize {
        let Some(FilterPair { current, next, spent }) = self.filters.as_deref() else { return 0 };
        current.filled() + next.as_ref().map_or(0, |next| next.filter.filled()) + spent.filled()
    }

    /// The mark of the next filter, if there is one.
    fn mark(&self) -> Option<Option<LockName>> {
        Some(self.filters.as_ref()?.next.as_ref()?.mark.clone())
    }

    /// The number of names in the next filter.
    fn moved(&self) -> Option<usize> {
        Some(self.mark()?.map_or(0, |mark| self.tree.range(..=mark).count()))
    }

    /// Compares the filters with a new count of all names.
    fn check(&self) {
        let Some(FilterPair { current, next, .. }) = self.filters.as_deref() else {
            return assert!(self.tree.len() < PER_PAGE, "a tree of PER_PAGE names has a filter");
        };
        assert!(self.tree.len() >= PER_PAGE / 2, "so few have none");
        let anew = |filter: &CountingBloomFilter, mark: Option<&LockName>| {
            let mut anew = CountingBloomFilter::new(filter.pages());
            let names = self.tree.keys().filter(|name| mark.is_none_or(|mark| *name <= mark));
            names.for_each(|name| anew.add(FilterSpot::of(name)));
            anew
        };
        assert!(
            anew(current, None).counts() == current.counts(),
            "the current filter has what the tree has"
        );
        if let Some(NextFilter { filter, mark }) = next {
            let anew = mark
                .as_ref()
                .map_or(CountingBloomFilter::new(filter.pages()), |mark| anew(filter, Some(mark)));
            assert!(
                anew.counts() == filter.counts(),
                "the next filter has what the tree has up to the mark"
            );
        } else {
            // A filter that no longer fits gets its successor with the next change.
            let (pages, len) = (current.pages(), self.tree.len());
            assert!(is_fit(pages, len), "{pages} pages for {len} names");
        }
    }
}

/// Adds and removes names at random: first more are added, then more are removed, through all sizes
/// and back to none.
#[test]
fn it_has_what_a_tree_has_while_filters_come_and_go() {
    let (mut names, mut tree, mut below) = (NameMap::new(), BTreeMap::new(), draws(1));
    let (mut sizes, mut ups, mut downs) = (Vec::new(), 0, 0);
    for (turns, coming) in [(30_000, 80), (20_000, 50), (15_000, 20), (15_000, 70), (60_000, 10)] {
        for cx in 0..turns {
            let number = if below(4) == 0 { below(MANY) } else { below(MANY / 2) };
            let comes = below(100) < coming;
            // A random name is rarely in the tree, so the next one in the tree is removed.
            let number = tree
                .range(number..)
                .next()
                .map_or(number, |(there, _)| if comes { number } else { *there });
            if comes {
                assert_eq!(put(&mut names, number), tree.insert(number, number).is_none());
            } else {
                take(&mut names, number);
                tree.remove(&number);
            }
            assert_eq!(names.len(), tree.len());
            for asked in [number, below(MANY)] {
                assert_eq!(
                    names.contains_key(&name(asked)),
                    tree.contains_key(&asked),
                    "{asked} of {}",
                    tree.len()
                );
            }
            if cx % 97 == 0 {
                names.check();
                assert!(names.values().eq(tree.values()));
            }
            let size = names.filters.as_ref().map_or(0, |filters| filters.current.pages());
            if sizes.last() != Some(&size) {
                ups += usize::from(sizes.last().is_some_and(|last| *last < size));
                downs += usize::from(sizes.last().is_some_and(|last| *last > size));
                sizes.push(size);
            }
        }
    }
    while let Some((&number, _)) = tree.first_key_value() {
        take(&mut names, number);
        tree.remove(&number);
        assert!(tree.keys().next().is_none_or(|first| names.contains_key(&name(*first))));
        names.check();
    }
    assert!(
        ups >= 5 && downs >= 4 && sizes.iter().any(|size| *size >= 16),
        "it went through {sizes:?}"
    );
    assert!(names.is_empty() && names.filters.is_none());
}

/// Adds and removes names right before, at and behind the mark, at each step in the making of a
/// filter.
#[test]
fn a_name_may_come_and_go_on_each_side_of_the_mark() {
    let count = PER_PAGE as u64 * 2;
    let (mut names, mut steps) = (names_of(count), 0);
    put(&mut names, 2 * count);
    while let Some(moved) = names.moved() {
        let mut all = names.clone();
        // Only even numbers are in the map.
        let mark = 2 * (moved as u64).saturating_sub(1);
        let numbers = [mark.saturating_sub(2), mark, mark + 2, mark + 16, mark + 18];
        numbers.iter().for_each(|number| take(&mut all, *number));
        all.check();
        assert!(numbers.iter().all(|number| !all.contains_key(&name(*number))));
        let numbers =
            [mark + 18, mark + 1, mark + 2, mark, mark.saturating_sub(2), mark + 16, mark + 15];
        numbers.iter().for_each(|number| {
            put(&mut all, *number);
        });
        all.check();
        assert!(numbers.iter().all(|number| all.contains_key(&name(*number))));
        steps += 1;
        put(&mut names, 2 * count + 2 * steps);
    }
    names.check();
    assert!(steps > count / MAX_MOVED_NAMES as u64, "{steps} steps");
}

/// The filter lets fewer than one in 20 absent names through to the tree, and a new filter one in
/// 100. It lets through names with a common prefix no more often than others.
#[test]
fn few_names_that_are_not_there_are_let_through_to_the_tree() {
    let share = |names: &NameMap<u64>, of: &dyn Fn(u64) -> LockName| {
        let filter = &names.filters.as_ref().expect("a filter").current;
        (0..MANY).filter(|number| filter.may_have(FilterSpot::of(&of(*number)))).count() as f64
            / MANY as f64
    };
    let odd = |number: u64| name(2 * number + 1);
    let other = |number: u64| {
        LockName::new(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes())
            .expect("a good name")
    };
    let long =
        |number: u64| LockName::new(format!("{number:0>40}").as_bytes()).expect("a good name");
    for doublings in 1..6 {
        let full = (PER_PAGE as u64 * 2) << doublings;
        let mut names = names_of(full);
        for (kind, of) in
            [("odd", &odd as &dyn Fn(u64) -> LockName), ("other", &other), ("long", &long)]
        {
            let share = share(&names, of);
            assert!(share < 0.055, "{share} of {kind} names beside {full}");
        }
        let mut number = 2 * full;
        while names.filters.as_ref().is_some_and(|filters| filters.next.is_some())
            || number == 2 * full
        {
            put(&mut names, number);
            number += 2;
        }
        let share = share(&names, &|at| name(number + 2 * at));
        assert!(share < 0.016, "{share} by a new filter of {}", names.len());
    }
}

/// Eight bytes in a new filter, four in an old one, and both while names are moved.
#[test]
fn a_name_takes_few_bytes_of_filters() {
    let bytes = |names: &NameMap<u64>| names.pages() as f64 * 4096.0 / names.len().max(1) as f64;
    let (mut names, mut most, mut least) = (NameMap::new(), 0.0, f64::MAX);
    for number in 0..MANY {
        put(&mut names, number);
        if names.len() > 2 * PER_PAGE {
            most = bytes(&names).max(most);
            least = bytes(&names).min(least);
        }
    }
    assert!(most < 12.5 && least < 4.5, "{least} to {most}");
    let mut most = 0.0;
    for number in 0..MANY {
        take(&mut names, number);
        most = bytes(&names).max(most);
    }
    assert!(most < 28.0, "{most} as they go");
    assert_eq!((names.pages(), names.filters.is_none()), (0, true));
}

/// No change of a name waits until all names are moved, or frees or allocates much memory, however
/// many names there are.
#[test]
fn one_change_moves_few_names_and_gives_back_one_page() {
    let mut names = NameMap::new();
    let mut filters = 0;
    let mut change = |names: &mut NameMap<u64>, change: &dyn Fn(&mut NameMap<u64>)| {
        let (before, pages) = (names.mark(), names.pages());
        change(names);
        let after = names.mark();
        if let Some(Some(mark)) = &after {
            let behind =
                before.as_ref().and_then(Option::as_ref).map_or(Bound::Unbounded, Bound::Excluded);
            let moved = names.tree.range((behind, Bound::Included(mark))).count();
            assert!(moved <= MAX_MOVED_NAMES, "{moved} were moved");
        }
        let few = if names.filters.is_none() { 3 } else { 1 };
        assert!(names.pages() + few >= pages, "of {pages} pages {} are left", names.pages());
        assert!(
            names.pages() <= pages + 2 + MAX_MOVED_NAMES,
            "{pages} pages and then {}",
            names.pages()
        );
        filters += usize::from(before.is_none() && after.is_some());
        // The next filter is complete in time: at most a seventh of the names change while it is
        // built.
        let len = names.len();
        if let Some(filters) = &names.filters {
            let fits = |len| filters.current.pages() == 0 || is_fit(filters.current.pages(), len);
            assert!(
                fits(len * 7 / 8) || fits(len * 8 / 7),
                "{} pages for {len}",
                filters.current.pages()
            );
        }
    };
    // Names are added and removed in their order, so new ones are always behind the mark; then in
    // reverse order.
    for number in 0..MANY {
        change(&mut names, &|names| assert!(put(names, number)));
    }
    for number in 0..MANY {
        change(&mut names, &|names| take(names, number));
    }
    for number in (0..MANY).rev() {
        change(&mut names, &|names| assert!(put(names, number)));
    }
    assert!(filters >= 3 * 5, "{filters} filters were made");
}

/// Adding and removing the same name does not make a new filter each time.
#[test]
fn a_name_that_comes_and_goes_at_a_limit_makes_one_filter() {
    for count in [PER_PAGE as u64 - 1, 2 * PER_PAGE as u64, 4 * PER_PAGE as u64] {
        let mut names = names_of(count);
        let mut sizes = Vec::new();
        for _ in 0..10_000 {
            put(&mut names, 1);
            take(&mut names, 1);
            sizes.push(names.filters.as_ref().map_or(0, |filters| filters.current.pages()));
            sizes.dedup();
        }
        assert!(sizes.len() <= 2, "{sizes:?}");
        names.check();
    }
}

#[test]
fn few_names_have_no_filter_and_none_leave_nothing() {
    let mut names = names_of(PER_PAGE as u64 - 1);
    assert!(names.filters.is_none());
    put(&mut names, 1);
    assert!(names.filters.is_some());
    (0..PER_PAGE as u64).for_each(|number| take(&mut names, 2 * number));
    assert!(names.filters.is_none());
    take(&mut names, 1);
    assert!(
        names.is_empty()
            && size_of::<NameMap<u64>>()
                == size_of::<BTreeMap<LockName, u64>>() + size_of::<usize>()
    );
}

#[test]
fn names_that_came_by_other_ways_are_equal() {
    let (mut one, mut other) = (names_of(MANY), NameMap::new());
    (10..MANY).rev().for_each(|number| take(&mut one, 2 * number));
    (0..10).rev().for_each(|number| assert!(put(&mut other, 2 * number)));
    (1..PER_PAGE as u64).for_each(|number| assert!(put(&mut one, 2 * number + 1)));
    (1..PER_PAGE as u64 - 300).for_each(|number| take(&mut one, 2 * number + 1));
    (PER_PAGE as u64 - 300..PER_PAGE as u64)
        .for_each(|number| assert!(put(&mut other, 2 * number + 1)));
    put(&mut other, 1);
    assert_ne!(one, other);
    take(&mut other, 1);
    // Both maps have the same names, but only one has a filter.
    (2 * MANY..2 * MANY + 100)
        .for_each(|number| assert!(put(&mut one, number) && put(&mut other, number)));
    assert!(one.filters.is_some() && other.filters.is_none());
    let hash = |names: &NameMap<u64>| {
        let mut hasher = DefaultHasher::new();
        names.hash(&mut hasher);
        hasher.finish()
    };
    assert_eq!(
        (&one, hash(&one), format!("{one:?}")),
        (&other, hash(&other), format!("{:?}", other.tree))
    );
}

/// A program could choose names that share all counters: here more of them than a counter can
/// count.
#[test]
fn counters_at_their_end_stay_there_and_never_say_no() {
    let mut filter = CountingBloomFilter::new(1);
    let spot = FilterSpot::of(&name(1));
    (0..40).for_each(|_| filter.add(spot));
    (0..39).for_each(|_| filter.remove(spot));
    assert!(filter.may_have(spot), "one is left");
    // Other names are not affected: each counter is separate.
    let mut filter = CountingBloomFilter::new(1);
    (0..400).for_each(|number| (0..20).for_each(|_| filter.add(FilterSpot::of(&name(number)))));
    (0..300).for_each(|number| (0..20).for_each(|_| filter.remove(FilterSpot::of(&name(number)))));
    assert!((300..400).all(|number| filter.may_have(FilterSpot::of(&name(number)))));
}
