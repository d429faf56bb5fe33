import { formatBytes, formatInteger, formatNumber } from '../../../../charts';
import { verdict, type IPlanned, type IPlanShape } from '../../plan';
import type { INote } from '../../../../views/shared/content';
import type { Translate } from '../../../../views/shared/translate';
import type { IPipelineRead } from './pipeline-reader';

/** What the notes ask of their view. */
export interface IVerdictActions {
  readonly t: Translate;
  readonly nameOf: (planned: IPlanned) => string;
  readonly copyCode: () => void;
  /** Draw a schedule. */
  readonly show: (schedule: string) => void;
  /** Have the training run a plan; null where it does not let viewers. */
  readonly apply: ((planned: IPlanned) => void) | null;
}

/** Whether another schedule is worth it, and what this run can switch to: a training keeps its stages, chunks and where they lie. */
export function verdictNotes(read: IPipelineRead, shown: IPlanned, actions: IVerdictActions): INote[] {
  const { apply, nameOf, show, t } = actions;
  const { best, measured } = read;
  if (best === null) {
    return [];
  }
  const made = read.planned.flatMap(each => ('refused' in each ? [] : [each]));
  const now = made.find(({ schedule }) => schedule === 'measured') ?? shown;
  const { change } = verdict(best, now);
  const isBest = best === now || best.schedule === read.alike;
  const words = isBest
    ? t('%1 is the fastest of %2 schedules.', nameOf(best), formatInteger(made.length))
    : change === 'switch'
      ? t('Switch to %1: %2.', nameOf(best), figures(best, now, t))
      : t('Keep %1: %2 would be %3.', nameOf(now), nameOf(best), figures(best, now, t));
  const text = [words, ...guessedWords(read, isBest ? [] : [best], t)].join(' ');
  const fitting = made.filter(
    each =>
      measured !== null &&
      fits(each.plan, measured.shape) &&
      each.overMemoryBytes === 0 &&
      !['measured', read.alike].includes(each.schedule)
  );
  const wished = fitting.includes(shown) ? shown : fitting.reduce<IPlanned | null>(faster, null);
  const isApplied = wished !== null && apply !== null;
  const first = { text, tone: 'finding' } as const;
  if (isApplied && wished === best && !isBest) {
    return [{ ...first, action: { label: t('Apply at the next step'), run: () => apply(wished) } }];
  }
  const action =
    shown !== best
      ? { label: t('Show it'), run: () => show(best.schedule) }
      : now === shown
        ? { label: t('Copy as code'), run: actions.copyCode }
        : { label: t('Show %1', nameOf(now)), run: () => show(now.schedule) };
  return [
    { ...first, action },
    ...(isApplied
      ? [
          {
            text: [
              t('This run can switch to %1: %2.', nameOf(wished), figures(wished, now, t)),
              ...guessedWords(read, [wished], t)
            ].join(' '),
            tone: 'finding',
            action: { label: t('Apply at the next step'), run: () => apply(wished) }
          } as const
        ]
      : [])
  ];
}

/** Say that a plan leans on what was not measured: passes in two parts often take longer than whole ones. */
function guessedWords({ measured }: IPipelineRead, plans: readonly IPlanned[], t: Translate): string[] {
  const isSplit = plans.some(({ plan }) => plan.order.some(order => order.includes('I')));
  return measured !== null && !measured.times.split && isSplit
    ? [t('Its backward passes run in two parts, which was not measured and often takes longer than in one.')]
    : [];
}

/** By how much one plan is shorter than another, and holds more: `−6.2 % ± 0.8, +0 B`. */
function figures(other: IPlanned, now: IPlanned, t: Translate): string {
  const { percent, plusMinus, memoryBytes } = verdict(other, now);
  const signed = (value: number, text: string): string => `${value < 0 ? '−' : '+'}${text}`;
  return t(
    '%1 % ± %2, %3',
    signed(percent, formatNumber(Math.abs(percent), 3)),
    formatNumber(plusMinus, 2),
    signed(memoryBytes, formatBytes(Math.abs(memoryBytes)))
  );
}

const faster = (best: IPlanned | null, each: IPlanned): IPlanned =>
  best === null || each.stepMs < best.stepMs ? each : best;

/** Whether a plan is of the stages, chunks, placement and micro-batches of a run. */
export function fits(plan: IPlanShape, shape: IPlanShape): boolean {
  return (
    plan.stages === shape.stages &&
    plan.chunks === shape.chunks &&
    plan.micro_batches === shape.micro_batches &&
    // With one chunk it lies nowhere else.
    (plan.placement === shape.placement || plan.chunks === 1)
  );
}
