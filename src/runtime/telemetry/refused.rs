//! The counters of refused input.

use crate::runtime::net::counters::Counters;

/// The counts of refused input by reason. The reasons are the names of the fields.
pub(crate) fn refused(counters: &Counters) -> [(&'static str, u64); 15] {
    macro_rules! named {
        ($($field:ident),* $(,)?) => { [$((stringify!($field), counters.$field)),*] };
    }
    named![
        garbage,
        damaged,
        unfinished,
        foreign_cluster,
        other_version,
        oversized,
        busy,
        silent,
        unknown_key,
        keyless,
        forged,
        repeated,
        impostors,
        vote_claims,
        above_role,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_of_refused_input_is_in_the_list() {
        let source = include_str!("../net/counters.rs").split("pub struct Counters {").nth(1);
        let lines = source.expect("the struct").split('}').next().expect("its fields").lines();
        let mut is_refused = false;
        let mut fields = Vec::new();
        for line in lines.map(str::trim) {
            match line.strip_prefix("pub ").and_then(|field| field.strip_suffix(": u64,")) {
                Some(field) if std::mem::take(&mut is_refused) => fields.push(field),
                Some(_) => {}
                None => is_refused |= line.starts_with("/// Refused: "),
            }
        }
        assert_eq!(refused(&Counters::default()).map(|(reason, _)| reason)[..], fields);
    }
}
