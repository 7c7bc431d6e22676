//! What a batch of new jobs waits for, found out before any of them is stored.

use std::collections::{HashMap, HashSet, VecDeque};

use tidegate_core::codes;
use tidegate_core::ids::{JobId, Seq};
use tidegate_core::limits;
use tidegate_core::time::Timestamp;

use super::enqueue::Checked;
use super::flows::{End, Verdict};
use super::{Change, Machine};
use crate::params::{EnqueueOutcome, Enqueued, NewJob};
use crate::rows::Rows;
use crate::{Error, Result};

/// How far the line of recoveries of a dead job is followed.
const LONGEST_LINE: usize = 100;

/// What the jobs of a batch wait for.
#[derive(Debug)]
pub(super) struct Plan {
    /// Jobs of the batch, those that are waited for before those that wait.
    order: Vec<usize>,
    /// For each job what it waits for, in the order in which it names them.
    links: Vec<Vec<Link>>,
}

/// A job that one of the batch waits for.
#[derive(Debug, Clone, Copy)]
enum Link {
    /// Another one of the batch.
    Inside(usize),
    /// One that is stored.
    Outside(Node),
}

/// A stored job that others wait for.
#[derive(Debug, Clone, Copy)]
struct Node {
    id: JobId,
    /// `None`: it completed so long ago that it is not stored any more.
    seq: Option<Seq>,
    end: Option<End>,
}

/// What one job waits for, once all of that is stored.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) parents: Vec<Seq>,
    /// How many of them it has to wait for.
    pub(super) open: u32,
    /// Those that are not finished.
    unfinished: Vec<Seq>,
    /// One that makes it dead at once.
    pub(super) fatal: Option<(JobId, End)>,
}

/// Ids that jobs of the batch wait for and that are not in it.
pub(super) fn outside(jobs: &[NewJob]) -> Vec<JobId> {
    if jobs.iter().all(|job| job.after.is_empty()) {
        return vec![];
    }
    let inside: HashSet<JobId> = jobs.iter().map(|job| job.id).collect();
    let mut outside: HashSet<JobId> = HashSet::new();
    let all = jobs.iter().flat_map(|job| &job.after).take(limits::MAX_ENQUEUE_EDGES);
    outside.extend(all.filter(|id| !inside.contains(id)));
    outside.into_iter().collect()
}

/// An order in which everything comes after what it waits for, as close to the given one as can be; or some that wait for
/// each other.
pub(super) fn order(waits_for: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    let n = waits_for.len();
    let mut open: Vec<usize> = waits_for.iter().map(Vec::len).collect();
    let mut waiting: Vec<Vec<usize>> = vec![vec![]; n];
    for (i, parents) in waits_for.iter().enumerate() {
        for parent in parents {
            waiting[*parent].push(i);
        }
    }
    let mut free: VecDeque<usize> = (0..n).filter(|i| open[*i] == 0).collect();
    let mut order = Vec::with_capacity(n);
    while let Some(i) = free.pop_front() {
        order.push(i);
        for child in &waiting[i] {
            open[*child] -= 1;
            if open[*child] == 0 {
                free.push_back(*child);
            }
        }
    }
    if order.len() == n {
        return Ok(order);
    }
    // Whoever is left waits for one that is left, too: following them comes back to one that was met.
    let mut circle: Vec<usize> = vec![];
    let mut at = (0..n).find(|i| open[*i] > 0).unwrap_or(0);
    while !circle.contains(&at) {
        circle.push(at);
        at = waits_for[at].iter().copied().find(|p| open[*p] > 0).unwrap_or(at);
    }
    let first = circle.iter().position(|i| *i == at).unwrap_or(0);
    Err(circle.split_off(first))
}

impl<R: Rows> Machine<R> {
    /// Finds out what the jobs wait for. `None`: none of them waits.
    pub(super) fn plan(&mut self, jobs: &[NewJob], checked: &[Checked]) -> Result<Option<Plan>> {
        let edges: usize = jobs.iter().map(|job| job.after.len()).sum();
        if edges == 0 {
            return Ok(None);
        }
        if edges > limits::MAX_ENQUEUE_EDGES {
            let detail =
                format!("{edges} dependencies in one call; {} are allowed", limits::MAX_ENQUEUE_EDGES);
            return Err(Error::new(codes::INVALID_BATCH, detail));
        }
        let inside: HashMap<JobId, usize> = jobs.iter().enumerate().map(|(i, job)| (job.id, i)).collect();
        let mut known: HashMap<JobId, Node> = HashMap::new();
        let mut dependents: HashMap<JobId, u32> = HashMap::new();
        let mut links = Vec::with_capacity(jobs.len());
        for (i, (job, checked)) in jobs.iter().zip(checked).enumerate() {
            let place = |e: Error| {
                if jobs.len() == 1 {
                    return e;
                }
                Error::new(e.code, format!("job {} of {}: {}", i + 1, jobs.len(), e.detail))
            };
            // A job that is stored already waits for what it waited for.
            let after: &[JobId] = if checked.same { &[] } else { &job.after };
            if after.len() > limits::MAX_DEPENDENCIES {
                let detail =
                    format!("it waits for {} jobs; {} are allowed", after.len(), limits::MAX_DEPENDENCIES);
                return Err(place(Error::new(codes::INVALID_BATCH, detail)));
            }
            let mut seen = HashSet::with_capacity(after.len());
            let mut of_job = Vec::with_capacity(after.len());
            for id in after.iter().filter(|id| seen.insert(**id)) {
                let link = self.link(job, *id, jobs, &inside, &mut known).map_err(place)?;
                let held = match link {
                    Link::Outside(Node { seq: Some(seq), .. }) => {
                        self.memory.dependents.get(&seq).copied().unwrap_or(0)
                    }
                    _ => 0,
                };
                let new = dependents.entry(*id).or_default();
                *new += 1;
                if held + *new > limits::MAX_DEPENDENTS {
                    let detail = format!("more than {} jobs would wait for {id}", limits::MAX_DEPENDENTS);
                    return Err(place(Error::new(codes::INVALID_BATCH, detail)));
                }
                of_job.push(link);
            }
            links.push(of_job);
        }
        let within = |link: &Link| if let Link::Inside(i) = link { Some(*i) } else { None };
        let waits_for: Vec<Vec<usize>> =
            links.iter().map(|of_job| of_job.iter().filter_map(within).collect()).collect();
        let order = order(&waits_for).map_err(|circle| {
            let ids: Vec<String> = circle.iter().take(5).map(|i| jobs[*i].id.to_string()).collect();
            let more = if circle.len() > 5 { ", …" } else { "" };
            let detail = format!("{} jobs wait for each other: {}{more}", circle.len(), ids.join(", "));
            Error::new(codes::CYCLE, detail)
        })?;
        Ok(Some(Plan { order, links }))
    }

    fn link(
        &mut self,
        job: &NewJob,
        id: JobId,
        jobs: &[NewJob],
        inside: &HashMap<JobId, usize>,
        known: &mut HashMap<JobId, Node>,
    ) -> Result<Link> {
        let unknown = || Error::new(codes::DEPENDENCY_NOT_FOUND, format!("there is no job {id} to wait for"));
        if let Some(&i) = inside.get(&id) {
            let foreign = job.tenant.is_some() && jobs[i].tenant != job.tenant;
            return if foreign { Err(unknown()) } else { Ok(Link::Inside(i)) };
        }
        let node = match known.get(&id) {
            Some(node) => *node,
            None => {
                let node = self.node(id)?.ok_or_else(unknown)?;
                known.insert(id, node);
                node
            }
        };
        // A tenant's job waits for that tenant's alone: what others have is not even there.
        if let (Some(tenant), Some(seq)) = (&job.tenant, node.seq) {
            let (_, owner) = self.lane_and_tenant(seq)?;
            if owner.is_none() || owner != self.memory.names.tenant_no(tenant) {
                return Err(unknown());
            }
        }
        Ok(Link::Outside(node))
    }

    /// A stored job, or the one that a dead one was recovered as.
    fn node(&mut self, id: JobId) -> Result<Option<Node>> {
        let Some(seq) = self.rows.find_job(id)? else { return Ok(None) };
        self.line(id, seq).map(Some)
    }

    /// The last of the line of recoveries that begins with this job.
    fn line(&mut self, id: JobId, mut seq: Seq) -> Result<Node> {
        for _ in 0..LONGEST_LINE {
            let done = self.end_of(seq)?;
            let Some((_, Some(next))) = done else {
                return Ok(Node { id, seq: Some(seq), end: done.map(|(end, _)| end) });
            };
            match self.rows.find_job(next)? {
                Some(next) => seq = next,
                // A dead letter is kept longer than what completed, and longer than an older letter: its successor has
                // completed, or was called off, and is not stored any more.
                None => return Ok(Node { id, seq: None, end: Some(End::Completed) }),
            }
        }
        // Nobody recovers a job that often; whatever it is, it is not waited for.
        Ok(Node { id, seq: Some(seq), end: Some(End::Dead) })
    }

    /// How a stored job ended, if it did, and what it was recovered as.
    fn end_of(&mut self, seq: Seq) -> Result<Option<(End, Option<JobId>)>> {
        if self.memory.dependents.contains_key(&seq) || self.memory.leases.running(seq).is_some() {
            return Ok(None);
        }
        let Some(done) = self.rows.done(seq)? else { return Ok(None) };
        let recovered = done.letter.and_then(|letter| letter.recovered_as);
        Ok(End::of(done.state).map(|end| (end, recovered)))
    }

    /// What a job that takes the place of a dead one waits for: what that one waited for, as far as it is not finished or was
    /// recovered itself. Whatever else did not complete is not waited for again: somebody has decided that the job is to run.
    pub(super) fn wait_again(&mut self, dead: Seq) -> Result<Waiting> {
        let mut nodes = vec![];
        if self.memory.edges > 0 {
            for parent in self.rows.parents(dead)? {
                if let Some(row) = self.rows.job(parent)? {
                    nodes.push(self.line(row.id, parent)?);
                } else if let Some(kept) = self.rows.kept(parent)? {
                    // Pruned, but its result is still to be seen.
                    nodes.push(Node { id: kept.id, seq: Some(parent), end: End::of(kept.state) });
                }
            }
        }
        Ok(wait_for(nodes.into_iter(), tidegate_core::job::OnDead::Ignore))
    }

    /// Adds the edges of a job that was just stored.
    pub(super) fn link_up(&mut self, seq: Seq, waiting: Waiting) -> Result<()> {
        for parent in &waiting.parents {
            self.rows.add_edge(*parent, seq)?;
        }
        let edges = waiting.parents.len() as u64;
        if edges == 0 {
            return Ok(());
        }
        self.change(Change::Linked { parents: waiting.unfinished, edges })
    }

    /// An order of dead letters in which each comes after those that it waited for.
    pub(super) fn order_letters(&mut self, dead: &[Option<Seq>]) -> Result<Vec<usize>> {
        let all: Vec<usize> = (0..dead.len()).collect();
        if self.memory.edges == 0 || dead.len() == 1 {
            return Ok(all);
        }
        let places: HashMap<Seq, usize> =
            dead.iter().enumerate().filter_map(|(i, seq)| Some(((*seq)?, i))).collect();
        let mut waits_for = Vec::with_capacity(dead.len());
        for seq in dead {
            let parents = seq.map_or(Ok(vec![]), |seq| self.rows.parents(seq))?;
            waits_for.push(parents.iter().filter_map(|p| places.get(p).copied()).collect());
        }
        Ok(order(&waits_for).unwrap_or(all))
    }

    /// Stores jobs that wait for each other, or for others.
    pub(super) fn enqueue_flow(
        &mut self,
        jobs: Vec<NewJob>,
        checked: Vec<Checked>,
        plan: Plan,
        now: Timestamp,
    ) -> Result<Vec<Enqueued>> {
        let n = jobs.len();
        let mut slots: Vec<Option<(NewJob, Checked)>> = jobs.into_iter().zip(checked).map(Some).collect();
        let mut nodes: Vec<Option<Node>> = vec![None; n];
        let mut replies: Vec<Option<Enqueued>> = vec![None; n];
        for i in plan.order {
            let Some((job, checked)) = slots[i].take() else { continue };
            let ends = plan.links[i].iter().filter_map(|link| match link {
                Link::Inside(j) => nodes[*j],
                Link::Outside(node) => Some(*node),
            });
            let waiting = wait_for(ends, job.on_dead);
            let waits = (!job.after.is_empty()).then_some(&waiting);
            let reply = self.enqueue_one(job, checked, waits, now)?;
            nodes[i] = Some(if reply.outcome == EnqueueOutcome::Created {
                let seq = Seq(self.memory.next_seq - 1);
                let fatal = waiting.fatal;
                self.link_up(seq, waiting)?;
                let end = match fatal {
                    Some((parent, end)) => {
                        self.bury_blocked(seq, parent, end, now)?;
                        Some(End::Dead)
                    }
                    None => None,
                };
                Node { id: reply.id, seq: Some(seq), end }
            } else {
                // Another job holds its key: who waits for this one waits for that one. One that is gone has ended well.
                let gone = Node { id: reply.id, seq: None, end: Some(End::Completed) };
                self.node(reply.id)?.unwrap_or(gone)
            });
            replies[i] = Some(reply);
        }
        Ok(replies.into_iter().flatten().collect())
    }
}

fn wait_for(nodes: impl Iterator<Item = Node>, on_dead: tidegate_core::job::OnDead) -> Waiting {
    let mut waiting = Waiting::default();
    let mut seen = HashSet::new();
    for Node { id, seq, end } in nodes {
        // One job may have two names here: it holds the key of another, or took the place of a dead one.
        if seq.is_some_and(|seq| !seen.insert(seq)) {
            continue;
        }
        waiting.parents.extend(seq);
        match end.map(|end| (end, end.verdict(on_dead))) {
            None => {
                waiting.open += 1;
                waiting.unfinished.extend(seq);
            }
            Some((_, Verdict::Open)) => waiting.open += 1,
            Some((_, Verdict::Satisfied)) => {}
            Some((end, Verdict::Fatal)) => waiting.fatal = waiting.fatal.or(Some((id, end))),
        }
    }
    waiting
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_comes_after_what_it_waits_for() {
        assert_eq!(order(&[vec![2], vec![], vec![1]]), Ok(vec![1, 2, 0]));
        assert_eq!(order(&[vec![], vec![], vec![]]), Ok(vec![0, 1, 2]), "nothing is moved without need");
    }

    #[test]
    fn a_circle_is_named_without_what_only_leads_to_it() {
        let mut circle = order(&[vec![1], vec![2], vec![1], vec![]]).unwrap_err();
        circle.sort_unstable();
        assert_eq!(circle, [1, 2]);
        assert_eq!(order(&[vec![0]]), Err(vec![0]), "itself");
    }
}
