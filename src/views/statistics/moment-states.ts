import { AggregateError } from '../../aggregate';
import { formatInteger } from '../../charts';
import { ClientError } from '../../client/rest';
import type { StatisticsOptions } from '../../protocol/views.generated';
import type { IMomentIndex, MomentStat, IMomentGroups } from '../../store/row-moments';
import type { IRunSource } from '../../store/source';
import { capital } from '../shared/describe';
import { emptyState, nothingYet, snippetState, type IState, type IStateActions } from '../shared/states';
import type { Translate } from '../shared/translate';
import type { MomentReader } from './reader';
import { showing, STATS, statsWords, type MomentOptions } from './words';

type Choose = (options: Partial<StatisticsOptions>) => void;

/** What logs statistics in a training script. */
export const SNIPPET =
  'statistics = megalens.log_statistics(model, optimizer, param=1, grad=1)\n' +
  'with statistics.step():  # around every training step';

/** What is logged, every how many steps; not all that can be in files can be logged. */
type Logged = Partial<Record<MomentStat, number>>;

/** Say why a run has no statistics at all. */
export function emptyMoments(
  source: IRunSource,
  index: IMomentIndex | null,
  { stat }: MomentOptions,
  actions: IStateActions,
  t: Translate
): IState {
  const open = source.connection.kind === 'live' || source.connection.kind === 'stale';
  const logged: Logged = source.hello?.statistics ?? {};
  const every = logged[stat] ?? Object.values(logged)[0];
  if (open && every !== undefined) {
    const what = logged[stat] === undefined ? (STATS.find(each => logged[each] !== undefined) ?? stat) : stat;
    const name = capital(statsWords(what, t));
    return nothingYet(
      every === 1
        ? t('%1 are logged every step; the first has not arrived yet.', name)
        : t(
            '%1 are logged every %2 steps; the first of these has not been reached yet.',
            name,
            formatInteger(every)
          ),
      actions,
      t
    );
  }
  const [warning] = index?.warnings ?? [];
  const sentence = open
    ? t('This training logs no statistics. Two lines in its script do:')
    : t('No statistics were logged in this run. Two lines in the training script do that:');
  return snippetState(warning ?? sentence, SNIPPET, actions, t);
}

/** Say that a run has other statistics than the chosen ones, and offer these. */
export function lacksStat(
  source: IRunSource,
  index: IMomentIndex,
  stat: MomentStat,
  choose: Choose,
  t: Translate
): IState {
  const present = STATS.filter(each => index.stats.some(known => known.stat === each && known.rows > 0));
  const logged: Logged = source.hello?.statistics ?? {};
  const every = logged[stat];
  const open = source.connection.kind === 'live' || source.connection.kind === 'stale';
  const name = capital(statsWords(stat, t));
  return {
    kind: 'empty',
    sentence:
      open && every !== undefined
        ? t(
            '%1 are logged every %2 steps; the first of these has not been reached yet.',
            name,
            formatInteger(every)
          )
        : t(
            '%1 were not logged in this run; there are %2.',
            name,
            present.map(each => statsWords(each, t)).join(', ')
          ),
    action: show(present[0] ?? 'grad'),
    more: present.slice(1).map(show)
  };

  function show(each: MomentStat): IState['action'] {
    return {
      label: t('Show %1', statsWords(each, t)),
      run: () => choose({ ...showing(each), ratio: 'none' })
    };
  }
}

/** Say that inputs and outputs are not mixed unless that is asked for. */
export function mixedState(sentence: string, options: MomentOptions, choose: Choose, t: Translate): IState {
  const only = (role: 'input' | 'output'): (() => void) => {
    return () => choose({ where: { ...options.where, role: [role] } });
  };
  return {
    kind: 'empty',
    sentence,
    action: { label: t('Outputs only'), run: only('output') },
    more: [
      { label: t('Inputs only'), run: only('input') },
      { label: t('Group by role'), run: () => choose({ by: [...(options.by ?? []), 'role'] }) },
      { label: t('Mix them'), run: () => choose({ mixed: true }) }
    ]
  };
}

/** Say that the filter, or the pattern, says nothing that can be asked. */
export function wrongFilter(sentence: string, options: MomentOptions, choose: Choose, t: Translate): IState {
  const clear = { label: t('Clear filter and pattern'), run: () => choose(cleared(options)) };
  return { kind: 'error', sentence, action: clear };
}

export function nothingMatches(
  options: MomentOptions,
  actions: IStateActions,
  choose: Choose,
  t: Translate
): IState {
  const filtered = Object.keys(options.where ?? {}).length > 0 || options.pattern !== null;
  if (filtered) {
    return emptyState(t('No tensor of this run matches the filter.'), t('Clear filter and pattern'), () =>
      choose(cleared(options))
    );
  }
  return options.steps === null
    ? nothingYet(t('There is nothing to draw for this choice.'), actions, t)
    : emptyState(
        t(
          'Nothing was logged in steps %1 to %2.',
          formatInteger(options.steps[0] ?? 0),
          formatInteger(options.steps[1] ?? 0)
        ),
        t('Show all steps'),
        () => choose({ steps: null })
      );
}

/** Options without filter and pattern; a grouping that needs the pattern goes with it. */
function cleared(options: MomentOptions): Partial<StatisticsOptions> {
  const by = (options.by ?? []).filter(column => column !== 'capture');
  return { where: {}, pattern: null, by };
}

/**
 * Why a question about groups was refused, wherever it was answered; null where that is not why it failed.
 */
export function refusalOf(reason: unknown): 'mixed' | 'invalid' | null {
  for (let error = reason; error instanceof Error; error = error.cause) {
    const code =
      error instanceof AggregateError
        ? error.code
        : error instanceof ClientError
          ? error.serverCode
          : undefined;
    if (code === 'mixed') {
      return 'mixed';
    }
    if (code === 'invalid' || code === 'bad-parameter') {
      return 'invalid';
    }
  }
  return null;
}

interface IBadNote {
  readonly step: number;
  readonly name: string;
  readonly text: string;
}

/**
 * Find the first step and tensor with values that are not finite; null where all are. `total` is that of all
 * that matches the filter.
 */
export async function noteOfBad(
  reader: MomentReader,
  total: IMomentGroups,
  { stat, where, pattern, ratio }: MomentOptions,
  signal: AbortSignal,
  t: Translate
): Promise<IBadNote | null> {
  const at = total.nonFinite.findIndex((count, index) => count !== 0 || total.value[index] === Infinity);
  const step = total.step[at];
  if (step === undefined) {
    return null;
  }
  const measured = ratio === 'grad_to_param' ? 'grad' : stat;
  const tensors = await reader.groups(
    {
      stat: measured,
      statistic: 'nonfinite',
      by: ['name'],
      where: where ?? {},
      pattern,
      steps: [step, step]
    },
    signal
  );
  const first = tensors.nonFinite.findIndex(count => count !== 0);
  const name = tensors.keys[tensors.group[first] ?? -1]?.[0];
  if (first < 0 || name === undefined || name === null) {
    return null;
  }
  const more = tensors.nonFinite.reduce((sum, count) => sum + (count !== 0 ? 1 : 0), -1);
  const count = tensors.nonFinite[first] ?? NaN;
  const how = Number.isNaN(count) ? t('number not known') : formatInteger(count);
  const sentence = t(
    'First non-finite %1: step %2, %3 (%4).',
    statsWords(measured, t),
    formatInteger(step),
    name,
    how
  );
  return {
    step,
    name: String(name),
    text: more > 0 ? `${sentence} ${t('At that step in %1 more tensors.', formatInteger(more))}` : sentence
  };
}
