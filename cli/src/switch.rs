//! `Switch`: a setting that is on, off or not given at all.

use clap::builder::{Arg, ValueParserFactory};
use clap::builder::{BoolishValueParser, MapValueParser, TypedValueParser as _};
use serde::Deserialize;
use std::any::TypeId;

/// A setting that is on or off, so that a source may undo the setting of a weaker source. A flag
/// without a value turns it on: `--found` is `--found=true`.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(transparent)]
pub(crate) struct Switch(bool);

impl Switch {
    /// Returns whether the switch is given and on.
    pub(crate) fn is_on(switch: Option<Switch>) -> bool {
        switch.is_some_and(|Switch(is_on)| is_on)
    }

    /// Makes the value of a flag optional if the flag is a switch. For `mut_args` of a command.
    pub(crate) fn alone(arg: Arg) -> Arg {
        if arg.get_value_parser().type_id() != TypeId::of::<Switch>() {
            return arg;
        }
        let arg = arg.num_args(0..=1).require_equals(true).default_missing_value("true");
        arg.value_name("true|false").hide_possible_values(true)
    }
}

impl From<bool> for Switch {
    fn from(is_on: bool) -> Switch {
        Switch(is_on)
    }
}

impl ValueParserFactory for Switch {
    type Parser = MapValueParser<BoolishValueParser, fn(bool) -> Switch>;

    fn value_parser() -> Self::Parser {
        BoolishValueParser::new().map(Switch)
    }
}
