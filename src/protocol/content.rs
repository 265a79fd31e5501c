//! The content of an object, and its edits: a value that its writer gives, or an operation on the
//! present number. The grantor executes the operation. So a distant writer need not know the latest
//! number, and nearer writers cannot overtake it for ever.

use super::id::{LockName, ProcessId, RequestId, Token, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The whole state of an object. A process that knows a version knows of every write that led to
/// it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Content {
    /// The object's value.
    pub value: Value,
    /// The token with which the value was written. It rises with each write.
    pub version: Token,
    /// Whether a grantor has died since the value was written: later writes may be lost with that
    /// grantor.
    pub maybe_stale: bool,
    /// The last write of each member that has the object open, so that no write is made twice.
    pub writes: BTreeMap<ProcessId, LastWrite>,
}

/// The approximate bytes of a [`LastWrite`] with its member.
pub(crate) const WRITE_BYTES: usize = 48;

/// Answers a repeated write without applying it twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct LastWrite {
    /// The writer's number for the write.
    pub request: RequestId,
    /// The version that the write made.
    pub version: Token,
    /// The number that a step made; `None` for a set value. The object may have a later number by
    /// now.
    pub number: Option<i32>,
}

impl Content {
    /// The approximate number of bytes in a message.
    pub(crate) fn weight(&self, name: &LockName) -> usize {
        48 + name.as_bytes().len() + self.value.as_bytes().len() + WRITE_BYTES * self.writes.len()
    }
}

/// One change of an object.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Edit {
    /// Sets the value.
    Set {
        /// The new value.
        value: Value,
        /// The edit applies only if the object has this version.
        expect: Option<Token>,
    },
    /// Changes the number with which the object's value begins: 32 bits, little endian.
    Step {
        /// The operation on the number.
        step: NumberEdit,
        /// The bytes behind the number, or a prefix of them. An object with other bytes there is
        /// not changed.
        tail: Value,
    },
}

/// A step of a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum NumberEdit {
    /// Adds a signed number; refused if the sum overflows 32 bits.
    Add(i32),
    /// Subtracts one, without a sign; refused at zero.
    CountDown,
    /// Sets the number, if it is zero, and adds one to the *round*: the number behind the tail.
    Reset(u32),
    /// Makes the number odd, or even, by adding one; refused if it is so already.
    SetParity {
        /// Whether the number becomes odd.
        odd: bool,
    },
}

/// The result of an edit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Edited {
    pub(crate) value: Value,
    /// The number that a step made; `None` for a set value.
    pub(crate) number: Option<i32>,
}

impl Edit {
    /// Applies the edit to this content; `None`: nothing is to be written.
    pub(crate) fn apply(&self, content: &Content) -> Option<Edited> {
        match self {
            Edit::Set { value, expect } => {
                let is_expected = expect.is_none_or(|expected| expected == content.version);
                is_expected.then(|| Edited { value: value.clone(), number: None })
            }
            Edit::Step { step, tail } => {
                let (number, rest) = content.value.as_bytes().split_first_chunk()?;
                let number = i32::from_le_bytes(*number);
                if !rest.starts_with(tail.as_bytes())
                    || rest.is_empty() != tail.as_bytes().is_empty()
                {
                    return None;
                }
                // A value that may be stale becomes certain when it is written again.
                let next = step
                    .from(number)
                    .or_else(|| (step.may_stay() && content.maybe_stale).then_some(number))?;
                let mut rest = rest.to_vec();
                if let NumberEdit::Reset(_) = step {
                    let round = rest.get_mut(tail.as_bytes().len()..)?.first_chunk_mut()?;
                    *round = u32::from_le_bytes(*round).wrapping_add(1).to_le_bytes();
                }
                let value = Value::new(&[&next.to_le_bytes()[..], &rest].concat()).ok()?;
                Some(Edited { value, number: Some(next) })
            }
        }
    }
}

impl NumberEdit {
    /// The next number, if there is one.
    pub(crate) fn from(self, number: i32) -> Option<i32> {
        match self {
            NumberEdit::Add(by) => number.checked_add(by),
            NumberEdit::CountDown => (number as u32).checked_sub(1).map(|left| left as i32),
            NumberEdit::Reset(count) => (number == 0).then_some(count as i32),
            NumberEdit::SetParity { odd } => {
                ((number & 1 == 1) != odd).then(|| number.wrapping_add(1))
            }
        }
    }

    /// Returns whether a number that the edit leaves unchanged has the wanted form already.
    fn may_stay(self) -> bool {
        !matches!(self, NumberEdit::Add(_) | NumberEdit::Reset(_))
    }
}

#[cfg(test)]
mod tests {
    use super::super::id::Slot;
    use super::*;
    use std::collections::BTreeMap;

    fn content(number: u32, tail: &str, maybe_stale: bool) -> Content {
        let value = Value::new(&[&number.to_le_bytes()[..], tail.as_bytes()].concat()).unwrap();
        Content { value, version: Token::new(Slot(1), 7), maybe_stale, writes: BTreeMap::new() }
    }

    fn step(step: NumberEdit, tail: &str) -> Edit {
        Edit::Step { step, tail: Value::new(tail.as_bytes()).unwrap() }
    }

    #[test]
    fn an_addition_does_not_leave_its_32_bits() {
        let max = i32::MAX as u32;
        for (before, by, after) in
            [(3, 4, Some(7)), (3, -4, Some(-1)), (max, 1, None), (max, 0, Some(i32::MAX))]
        {
            let made = step(NumberEdit::Add(by), "").apply(&content(before, "", false));
            assert_eq!(made.and_then(|made| made.number), after, "{before} {by}");
        }
        assert_eq!(
            step(NumberEdit::Add(1), "").apply(&content(max, "", true)),
            None,
            "it is not made sure by an addition"
        );
    }

    #[test]
    fn a_count_is_counted_down_to_zero_and_no_further() {
        for (before, after) in [(u32::MAX, Some(-2)), (1, Some(0)), (0, None)] {
            let made = step(NumberEdit::CountDown, "L").apply(&content(before, "L", false));
            assert_eq!(made.and_then(|made| made.number), after, "{before}");
        }
        assert_eq!(
            step(NumberEdit::CountDown, "L").apply(&content(0, "L", true)).unwrap().number,
            Some(0)
        );
    }

    #[test]
    fn a_count_begins_anew_from_zero_only_and_in_another_round() {
        let tail = |round: u8| format!("L{}\0\0\0", char::from(round));
        let reset = step(NumberEdit::Reset(3), "L");
        let made = reset.apply(&content(0, &tail(7), false)).unwrap();
        assert_eq!((made.value.as_bytes(), made.number), (&b"\x03\0\0\0L\x08\0\0\0"[..], Some(3)));
        assert_eq!(reset.apply(&content(1, &tail(7), true)), None);
        assert_eq!(reset.apply(&content(0, "L", false)), None, "it has no round");
    }

    #[test]
    fn a_number_is_turned_once() {
        for (before, odd, after) in
            [(0, true, Some(1)), (1, true, None), (1, false, Some(2)), (2, false, None)]
        {
            let made = step(NumberEdit::SetParity { odd }, "B").apply(&content(before, "B", false));
            assert_eq!(made.and_then(|made| made.number), after, "{before} {odd}");
        }
    }

    #[test]
    fn another_kind_of_object_is_not_changed() {
        for (is, wanted) in [("", "L"), ("L", ""), ("B", "L")] {
            assert_eq!(
                step(NumberEdit::Add(1), wanted).apply(&content(1, is, false)),
                None,
                "{is:?} {wanted:?}"
            );
        }
        let short = Content { value: Value::new(b"abc").unwrap(), ..content(1, "", false) };
        assert_eq!(step(NumberEdit::Add(1), "").apply(&short), None);
        // The bytes behind the number stay.
        let made = step(NumberEdit::Add(1), "L").apply(&content(1, "Lmore", false)).unwrap();
        assert_eq!(made.value.as_bytes(), b"\x02\0\0\0Lmore");
    }

    #[test]
    fn a_value_is_set_over_the_version_that_is_expected() {
        let value = Value::new(b"x").unwrap();
        let is = |sequence| Some(Token::new(Slot(1), sequence));
        for (expect, is_made) in [(None, true), (is(7), true), (is(6), false), (is(8), false)] {
            let edit = Edit::Set { value: value.clone(), expect };
            assert_eq!(edit.apply(&content(1, "", false)).is_some(), is_made, "{expect:?}");
        }
    }
}
