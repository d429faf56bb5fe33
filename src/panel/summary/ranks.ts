import type { TranslationBundle } from '@jupyterlab/translation';
import { formatInteger } from '../../charts/format';
import type { Layout, RankPlace, RankState, Status } from '../../protocol/messages.generated';

export interface IRank {
  readonly rank: number;
  /** Where it stands, null where nobody told. */
  readonly coordinates: RankPlace | null;
  /** How it is, null while nothing was heard of it. */
  readonly state: RankState | null;
}

/** One pipeline stage with its processes, by data-parallel, then tensor-parallel place. */
export interface IStage {
  /** Counted from 0; null holds the processes whose place nobody told. */
  readonly stage: number | null;
  readonly ranks: readonly IRank[];
}

/** The layout in short, such as `TP 2 PP 2 DP 2`; further axes where they are used. */
export function layoutText(layout: Layout): string {
  const more = [
    ['VP', layout.vpp],
    ['EP', layout.ep],
    ['CP', layout.cp]
  ] as const;
  return [
    `TP ${layout.tp}`,
    `PP ${layout.pp}`,
    `DP ${layout.dp}`,
    ...more.flatMap(([name, size]) => (size !== undefined && size > 1 ? [`${name} ${size}`] : []))
  ].join(' ');
}

/** Processes that are stopped, frozen or gone: gone ones first, then the longest silent. */
export function troubledRanks(status: Status | null): readonly RankState[] {
  return (status?.ranks ?? [])
    .filter(({ state }) => state === 'silent' || state === 'lost')
    .sort((a, b) =>
      a.state === b.state
        ? (b.seconds ?? 0) - (a.seconds ?? 0) || a.rank - b.rank
        : a.state === 'lost'
          ? -1
          : 1
    );
}

/** Every process of the job by its stage. */
export function stagesOf(layout: Layout | null, status: Status | null): readonly IStage[] {
  const states = new Map((status?.ranks ?? []).map(state => [state.rank, state]));
  const byRank = new Map((layout?.ranks ?? []).map(each => [each.rank, each]));
  const stages = new Map<number | null, IRank[]>();
  for (const rank of [...new Set([...byRank.keys(), ...states.keys()])].sort((a, b) => a - b)) {
    const coordinates = byRank.get(rank) ?? null;
    const stage = coordinates?.pp ?? null;
    stages.set(stage, [...(stages.get(stage) ?? []), { rank, coordinates, state: states.get(rank) ?? null }]);
  }
  return [...stages]
    .sort(([a], [b]) => (a ?? Infinity) - (b ?? Infinity))
    .map(([stage, ranks]) => ({
      stage,
      ranks: ranks.sort(
        (a, b) =>
          order(a.coordinates, b.coordinates, 'dp') ||
          order(a.coordinates, b.coordinates, 'tp') ||
          a.rank - b.rank
      )
    }));
}

/** A process by its name, such as `rank 3 (tp 1, pp 1) on node-1`. */
export function rankName(rank: number, state: RankState | null, coordinates: RankPlace | null): string {
  if (state?.name !== undefined) {
    return state.name;
  }
  const where =
    coordinates === null ? '' : ` (tp ${coordinates.tp}, pp ${coordinates.pp}, dp ${coordinates.dp})`;
  return `rank ${rank}${where}${coordinates?.host === undefined ? '' : ` on ${coordinates.host}`}`;
}

/** How a process is, in a sentence part: `has been silent for 2.5 s`. */
export function rankText(state: RankState | null, trans: TranslationBundle): string {
  const step = formatInteger(state?.step ?? 0);
  const seconds = (state?.seconds ?? 0).toFixed(1);
  switch (state?.state) {
    case undefined:
      return trans.__('has not been heard of');
    case 'silent':
      return trans.__('has been silent for %1 s, since step %2', seconds, step);
    case 'lost':
      return trans.__('stopped unexpectedly after step %1', step);
    case 'training':
      return trans.__('trains, step %1', step);
    case 'paused':
      return trans.__('is paused at step %1', step);
    case 'idle':
      return trans.__('is idle after step %1', step);
    case 'finished':
      return trans.__('finished at step %1', step);
  }
}

function order(a: RankPlace | null, b: RankPlace | null, axis: 'dp' | 'tp'): number {
  return (a?.[axis] ?? Infinity) === (b?.[axis] ?? Infinity)
    ? 0
    : (a?.[axis] ?? Infinity) - (b?.[axis] ?? Infinity);
}
