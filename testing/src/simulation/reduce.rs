//! Reducing a list of causes to those that an effect needs.

/// Leaves some causes out, first many at a time and then single ones, as long as the rest still
/// `breaks`.
pub fn reduce<T: Clone>(
    all: &[T],
    runs: &mut usize,
    mut breaks: impl FnMut(&[T]) -> bool,
) -> Vec<T> {
    let mut kept = all.to_vec();
    let mut chunk = kept.len();
    while chunk > 0 {
        let mut start = 0;
        let before = kept.len();
        while start < kept.len() && *runs > 0 {
            let rest: Vec<T> = kept[..start]
                .iter()
                .chain(&kept[(start + chunk).min(kept.len())..])
                .cloned()
                .collect();
            *runs -= 1;
            if breaks(&rest) {
                kept = rest;
            } else {
                start += chunk;
            }
        }
        // Single causes are tried again and again: some can only go after others.
        if chunk > 1 || kept.len() == before {
            chunk /= 2;
        }
    }
    kept
}
