//! `Verdict`: the outcome of a test or of a program.

use std::fmt::Display;

/// The outcome of a test or of a program in a simulated process: `()`, or a `Result` whose error
/// fails the run. A panic fails the run too. A program that loops for ever has no outcome.
///
/// ```
/// use elderlock_testing::Verdict;
/// assert_eq!(().failure(), None);
/// assert_eq!(Ok::<(), String>(()).failure(), None);
/// assert_eq!(Err::<(), _>("oversold").failure().as_deref(), Some("oversold"));
/// ```
pub trait Verdict {
    /// The reason why the run has failed. `None` if it has not.
    fn failure(self) -> Option<String>;
}

impl Verdict for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<E: Display> Verdict for Result<(), E> {
    fn failure(self) -> Option<String> {
        self.err().map(|error| error.to_string())
    }
}

/// The never type, which stable Rust cannot name directly.
type Never = <fn() -> ! as never::Returns>::Output;

mod never {
    /// Gives a name to the output of a function's type.
    pub trait Returns {
        type Output;
    }

    impl<T> Returns for fn() -> T {
        type Output = T;
    }
}

impl Verdict for Never {
    fn failure(self) -> Option<String> {
        self
    }
}
