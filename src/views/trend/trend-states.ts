import { keptStatistic, layoutOf } from '../../aggregate';
import { formatInteger } from '../../charts';
import { inRanges } from '../../protocol/ranges';
import type { ITrendAnswer } from '../../store/line-data';
import { layerWords } from '../shared/layers';
import { emptyFlag, emptyState, nothingYet, type IState } from '../shared/states';
import { statisticWords, type ITrendSubject } from './trend-words';

/** What to say where none of the chosen layers is traced. */
export function noLayer({ shape, options, choose, t }: ITrendSubject): IState {
  return emptyState(
    t('Layers %1 are not traced; there are rows of %2.', options.layers, layerWords(shape.layers)),
    t('Show all layers'),
    () => choose({ layers: 'all' })
  );
}

/** Why there is nothing to draw of an answer; null where there is something. */
export async function nothingDrawn(
  subject: ITrendSubject,
  answer: ITrendAnswer,
  steps: readonly [number, number] | null
): Promise<IState | null> {
  const { source, options, actions, choose, t } = subject;
  const { flag, phase, pass, statistic } = options;
  const beyond = beyondPositions(subject, answer);
  if (beyond) {
    return beyond;
  }
  if (answer.lines.length === 0) {
    const traced = steps ? await source.steps(flag, phase, { pass }) : [];
    return steps && traced.length > 0
      ? noStep(subject, steps, traced)
      : emptyFlag(source, flag, phase, actions, t, pass);
  }
  return answer.kept && keptStatistic(statistic) === null
    ? emptyState(
        t(
          'The %1 of whole tensors is not known here: this run says only what the compressor kept.',
          statisticWords(statistic, t)
        ),
        t('Show the rms'),
        () => choose({ statistic: 'rms' })
      )
    : null;
}

/** What to say where none of the chosen positions is there. */
function beyondPositions(
  { options, selection, choose, t }: ITrendSubject,
  { newest }: ITrendAnswer
): IState | null {
  const layout = newest && layoutOf(newest, selection.axes);
  const all = Array.from({ length: layout?.length ?? 0 }, (_, at) => at);
  return !layout?.hasPositions || inRanges(options.positions, all).length > 0
    ? null
    : emptyState(
        t('There is no position %1; they go from 0 to %2.', options.positions, layout.length - 1),
        t('Take all positions'),
        () => choose({ positions: 'all' })
      );
}

function noStep(
  { actions, t }: ITrendSubject,
  [first, last]: readonly [number, number],
  traced: readonly number[]
): IState {
  return nothingYet(
    t(
      'Nothing was traced of steps %1 to %2: there are rows at steps %3 to %4.',
      formatInteger(first),
      formatInteger(last),
      formatInteger(traced[0] ?? 0),
      formatInteger(traced[traced.length - 1] ?? 0)
    ),
    actions,
    t
  );
}
