//! The places of labels: every label of a strip goes through [`stack`], so none covers another.

/// The width of one character, in hundredths of the font size. It is a generous estimate:
/// `sim/tests/simulator/report.rs` measures the widths that a browser draws.
const CHARACTER: i64 = 63;
/// The distance between two labels of a row.
const GAP: i64 = 6;

/// A text with its desired position in a strip. In pixels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label {
    /// The desired beginning.
    pub at: i64,
    /// The width of the text.
    pub width: i64,
}

/// The place of a label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LabelPosition {
    /// The left end of the label.
    pub left: i64,
    /// The row of the label, from 0.
    pub row: usize,
}

/// An upper bound of the width of a text.
pub fn width(text: &str, size: i64) -> i64 {
    text.chars().count() as i64 * size * CHARACTER / 100 + 2
}

/// Gives each label the first row with room for it. Earlier labels come first, so their order is
/// their importance. A label begins at its desired position, or as far to the left as needed to end
/// within the strip. `None` if no row has room, or the label is wider than the strip.
pub fn stack(labels: &[Label], strip: i64, rows: usize) -> Vec<Option<LabelPosition>> {
    let mut taken: Vec<Vec<(i64, i64)>> = vec![Vec::new(); rows];
    let site = |label: &Label| {
        if label.width > strip {
            return None;
        }
        let left = label.at.clamp(0, strip - label.width);
        let right = left + label.width;
        let free = |row: &Vec<(i64, i64)>| {
            row.iter().all(|(from, to)| right + GAP <= *from || to + GAP <= left)
        };
        let row = taken.iter().position(free)?;
        taken[row].push((left, right));
        Some(LabelPosition { left, row })
    };
    labels.iter().map(site).collect()
}

/// The number of rows that these labels take.
pub fn height(spots: &[Option<LabelPosition>]) -> usize {
    spots.iter().flatten().map(|spot| spot.row + 1).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::chance::Rng;

    fn some_labels(seed: u64) -> (Vec<Label>, i64) {
        let mut rng = Rng::new(seed, 0);
        let strip = rng.between(100, 1_200) as i64;
        let many = rng.below(60);
        let label = |_| Label {
            at: rng.between(0, strip as u64 * 3 / 2) as i64 - strip / 4,
            width: rng.between(1, 260) as i64,
        };
        ((0..many).map(label).collect(), strip)
    }

    #[test]
    fn no_label_covers_another_or_leaves_its_strip() {
        for seed in 0..500 {
            let (labels, strip) = some_labels(seed);
            let spots = stack(&labels, strip, 5);
            assert_eq!(spots.len(), labels.len());
            let placed: Vec<(LabelPosition, i64)> = labels
                .iter()
                .zip(&spots)
                .filter_map(|(label, spot)| Some(((*spot)?, label.width)))
                .collect();
            for (index, (one, width)) in placed.iter().enumerate() {
                assert!(one.left >= 0 && one.left + width <= strip && one.row < 5);
                for (other, other_width) in &placed[..index] {
                    let apart =
                        one.left + width <= other.left || other.left + other_width <= one.left;
                    assert!(one.row != other.row || apart, "seed {seed}: {one:?} covers {other:?}");
                }
            }
        }
    }

    #[test]
    fn with_rows_enough_every_label_that_fits_the_strip_stands() {
        for seed in 0..500 {
            let (labels, strip) = some_labels(seed);
            let spots = stack(&labels, strip, labels.len());
            for (label, spot) in labels.iter().zip(&spots) {
                assert_eq!(spot.is_some(), label.width <= strip);
            }
            assert!(height(&spots) <= labels.len());
        }
    }

    #[test]
    fn the_first_labels_are_the_last_to_be_left_out() {
        let same = [Label { at: 10, width: 50 }; 4];
        let spots = stack(&same, 100, 2);
        assert_eq!(
            spots.iter().map(Option::is_some).collect::<Vec<_>>(),
            [true, true, false, false]
        );
    }
}
