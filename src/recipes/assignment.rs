//! The number of partitions that each claimant should own.

/// A claimant as all claimants see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ClaimantShare {
    pub(super) id: Vec<u8>,
    pub(super) weight: u32,
    /// The number of partitions that the claimant owns now.
    pub(super) owned: usize,
}

/// The number of partitions for each claimant, in their order: the exact share by weight, rounded
/// down or up. The sum is the number of partitions, unless no claimant has a weight.
///
/// Each claimant computes this for itself, from the same list. If exact shares are fractions, the
/// claimants that own more than the lower number already keep the higher one. So rounding alone
/// moves no partition, and a partition on its way from one claimant to another changes no other
/// share.
pub(super) fn quotas(claimants: &[ClaimantShare], partitions: usize) -> Vec<usize> {
    let total: u128 = claimants.iter().map(|one| u128::from(one.weight)).sum();
    if total == 0 {
        return vec![0; claimants.len()];
    }
    let exact = |one: &ClaimantShare| partitions as u128 * u128::from(one.weight);
    let mut quotas: Vec<usize> =
        claimants.iter().map(|one| (exact(one) / total) as usize).collect();
    let mut next: Vec<usize> =
        (0..claimants.len()).filter(|at| exact(&claimants[*at]) % total > 0).collect();
    next.sort_by_key(|at| {
        let one = &claimants[*at];
        let has_more = one.owned > quotas[*at];
        (!has_more, total - exact(one) % total, &one.id)
    });
    let left = partitions - quotas.iter().sum::<usize>();
    for at in next.into_iter().take(left) {
        quotas[at] += 1;
    }
    quotas
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimants(of: &[(u32, usize)]) -> Vec<ClaimantShare> {
        let claimant = |(id, (weight, owned)): (u8, &(u32, usize))| ClaimantShare {
            id: vec![id],
            weight: *weight,
            owned: *owned,
        };
        (0..).zip(of).map(claimant).collect()
    }

    #[test]
    fn shares_are_even_within_one_and_are_all_partitions() {
        for count in 1..=7 {
            for partitions in 0..=20 {
                let quotas = quotas(&claimants(&vec![(1, 0); count]), partitions);
                assert_eq!(quotas.iter().sum::<usize>(), partitions);
                assert!(quotas.iter().max().unwrap() - quotas.iter().min().unwrap() <= 1);
            }
        }
    }

    #[test]
    fn weights_share_in_proportion() {
        for (of, partitions, shares) in [
            (&[(1, 0), (3, 0)][..], 8, &[2, 6][..]),
            (&[(2, 4), (1, 1), (1, 1)], 6, &[3, 2, 1]),
            (&[(0, 3), (1, 0)], 5, &[0, 5]),
            (&[(0, 3)], 5, &[0]),
            (&[(u32::MAX, 0), (u32::MAX, 0)], 3, &[2, 1]),
            (&[], 5, &[]),
        ] {
            assert_eq!(quotas(&claimants(of), partitions), shares, "{of:?}");
        }
    }

    #[test]
    fn an_owner_of_one_more_keeps_it() {
        for (owned, shares) in [
            (&[4, 3, 3][..], &[4, 3, 3][..]),
            (&[3, 4, 3], &[3, 4, 3]),
            (&[3, 3, 4], &[3, 3, 4]),
            (&[5, 5, 0], &[4, 3, 3]),
            // On the way there one claimant has released its surplus, and the other shares stay.
            (&[4, 5, 0], &[4, 3, 3]),
            (&[4, 3, 0], &[4, 3, 3]),
            (&[0, 0, 10], &[3, 3, 4]),
        ] {
            let of: Vec<_> = owned.iter().map(|owned| (1, *owned)).collect();
            assert_eq!(quotas(&claimants(&of), 10), shares, "{owned:?}");
        }
    }

    /// Claimants act one after the other, each by its own share, until none has anything to do. All
    /// are even then, and no claimant releases a partition again that it took.
    #[test]
    fn shares_settle_with_few_moves() {
        for (mut owned, partitions, moves) in [
            (vec![10, 0], 10, 5),
            (vec![5, 5, 0], 10, 3),
            (vec![4, 3, 3, 0], 10, 2),
            (vec![0, 0, 3, 3], 10, 4),
            (vec![7, 0, 0, 0, 0], 7, 6 - 1),
        ] {
            let mut free = partitions - owned.iter().sum::<usize>();
            let mut taken = 0;
            for turn in 0..100 {
                let of: Vec<_> = owned.iter().map(|owned| (1, *owned)).collect();
                let quotas = quotas(&claimants(&of), partitions);
                let at = turn % owned.len();
                if owned[at] > quotas[at] {
                    owned[at] -= 1;
                    free += 1;
                } else if owned[at] < quotas[at] && free > 0 {
                    owned[at] += 1;
                    free -= 1;
                    taken += 1;
                }
            }
            assert_eq!((free, taken), (0, moves), "{owned:?}");
            assert!(owned.iter().max().unwrap() - owned.iter().min().unwrap() <= 1, "{owned:?}");
        }
    }
}
