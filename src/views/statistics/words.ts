import { formatInteger } from '../../charts';
import type { StatisticsOptions } from '../../protocol/views.generated';
import type { MomentColumn, MomentKey, MomentStat, MomentStatistic } from '../../store/row-moments';
import { comparedWords } from '../kits/lines/compare';
import { toldOf, type ILine } from '../kits/lines/line';
import { countNaming, seriesWords } from '../shared/change-words';
import { capital } from '../shared/describe';
import type { Translate } from '../shared/translate';

export type MomentOptions = Required<StatisticsOptions>;

export { MOMENT_STATISTICS as STATISTICS, MOMENT_STATS as STATS } from '../../protocol/moment-statistics';

/** Name what was measured: `gradient`. */
export const statWords = (stat: MomentStat, t: Translate): string => namesOf(stat, t)[0];

/** Name several of what was measured: `gradients`. */
export const statsWords = (stat: MomentStat, t: Translate): string => namesOf(stat, t)[1];

function namesOf(stat: MomentStat, t: Translate): readonly [string, string] {
  const words: Record<MomentStat, readonly [string, string]> = {
    param: [t('parameter'), t('parameters')],
    grad: [t('gradient'), t('gradients')],
    activation: [t('activation'), t('activations')],
    dgrad: [t('activation gradient'), t('activation gradients')],
    residual: [t('residual stream'), t('residual streams')],
    residual_dgrad: [t('residual stream gradient'), t('residual stream gradients')],
    grad_unreduced: [t('gradient before reduction'), t('gradients before reduction')],
    param_origin: [t('parameter before the update'), t('parameters before the update')],
    exp_avg: [t('first moment of the optimizer'), t('first moments of the optimizer')],
    exp_avg_sq: [t('second moment of the optimizer'), t('second moments of the optimizer')],
    attention_entropy: [t('attention entropy'), t('attention entropies')],
    attention_max: [t('largest attention'), t('largest attentions')],
    router_entropy: [t('router entropy'), t('router entropies')],
    router_similarity: [t('router similarity'), t('router similarities')],
    stable_rank: [t('stable rank'), t('stable ranks')],
    kernel_norm: [t('kernel norm'), t('kernel norms')],
    underflow: [t('underflow'), t('underflow of casts')],
    overflow: [t('overflow'), t('overflow of casts')],
    saturated: [t('saturation'), t('saturation of casts')],
    subnormal: [t('subnormal share'), t('subnormal results of casts')],
    cast_error: [t('cast error'), t('cast errors')],
    cast_scale: [t('cast scale'), t('cast scales')],
    cast_amax: [t('largest size of a cast'), t('largest sizes of casts')]
  };
  return words[stat];
}

const SHARES: readonly MomentStat[] = ['underflow', 'overflow', 'saturated', 'subnormal'];

/** Options that show a stat. Shares are means of ones and zeros: no other statistic says much of them. */
export const showing = (stat: MomentStat): Partial<StatisticsOptions> => ({
  stat,
  ...(SHARES.includes(stat) ? { statistic: 'mean' } : {})
});

export function statisticWords(statistic: MomentStatistic, t: Translate): string {
  const words: Record<MomentStatistic, string> = {
    l2: t('L2'),
    rms: t('RMS'),
    mean: t('mean'),
    variance: t('variance'),
    std: t('standard deviation'),
    skewness: t('skewness'),
    kurtosis: t('kurtosis'),
    excess_kurtosis: t('excess kurtosis'),
    min: t('minimum'),
    max: t('maximum'),
    near_zero_share: t('share near zero'),
    nonfinite: t('non-finite values')
  };
  return words[statistic];
}

export function columnWords(column: MomentColumn | 'step', t: Translate): string {
  const words: Record<MomentColumn | 'step', string> = {
    step: t('step'),
    name: t('tensor'),
    layer: t('layer'),
    stack: t('stack'),
    family: t('family'),
    kind: t('kind'),
    module_type: t('module type'),
    item_type: t('item type'),
    role: t('role'),
    expert: t('expert'),
    rank: t('rank'),
    stage: t('stage'),
    capture: t('pattern')
  };
  return words[column];
}

/** Name a grouping: `layer and role`; the total where there is none. */
export function byWords(by: readonly MomentColumn[], t: Translate): string {
  const words = by.map(column => columnWords(column, t));
  const last = words.pop();
  return last === undefined ? t('total') : words.length === 0 ? last : t('%1 and %2', words.join(', '), last);
}

/** Columns whose numbers say nothing without their name. */
const NUMBERED: readonly MomentColumn[] = ['layer', 'expert', 'rank', 'stage'];

/** Name a group by its key: `layer 3 · output`. */
export function keyWords(key: MomentKey, by: readonly MomentColumn[], t: Translate): string {
  if (key.length === 0) {
    return t('all tensors');
  }
  return key
    .map((value, at) => {
      const column = by[at] ?? 'name';
      if (value === null) {
        return t('tensors of no %1', columnWords(column, t));
      }
      return NUMBERED.includes(column) ? `${columnWords(column, t)} ${value}` : String(value);
    })
    .join(' · ');
}

/** Name the quantity that is drawn, before it is shown relative to anything: `gradient L2`. */
export function quantityWords({ stat, statistic, ratio }: MomentOptions, t: Translate): string {
  const name = statisticWords(statistic, t);
  switch (ratio) {
    case 'grad_to_param':
      return t('gradient over parameter %1', name);
    case 'gain':
      return stat === 'dgrad'
        ? t('backward gain of %1 (input over output)', name)
        : t('gain of %1 (output over input)', name);
    case 'none':
      return `${statWords(stat, t)} ${name}`;
  }
}

/** Name the vertical axis, with what the numbers are relative to. */
export function axisWords(options: MomentOptions, others: readonly string[], t: Translate): string {
  const quantity = quantityWords(options, t);
  const shown =
    options.show === 'raw'
      ? quantity
      : options.show === 'relative'
        ? t('%1, times its first value', quantity)
        : options.show === 'delta'
          ? t('%1, change since the first value', quantity)
          : t('%1, change since the first value, %', quantity);
  return others.length === 0 ? shown : comparedWords(shown, options.compare, t);
}

/** Say what is drawn: `Gradient L2 by layer, steps 1 to 3 000`. */
export function titleWords(
  options: MomentOptions,
  by: readonly MomentColumn[],
  steps: ArrayLike<number>,
  t: Translate
): string {
  const quantity = capital(quantityWords(options, t));
  const what = by.length === 0 ? t('%1 of all tensors', quantity) : t('%1 by %2', quantity, byWords(by, t));
  let [first, last] = [Infinity, -Infinity];
  for (let at = 0; at < steps.length; at += 1) {
    first = Math.min(first, steps[at] ?? first);
    last = Math.max(last, steps[at] ?? last);
  }
  return first === last
    ? t('%1, step %2', what, formatInteger(first))
    : t('%1, steps %2 to %3', what, formatInteger(first), formatInteger(last));
}

/** What a line says of its values at its steps. */
type Told = Pick<ILine, 'name' | 'nonFinite' | 'starts' | 'step' | 'value'>;

/** Say what rows or lines of a quantity did. Each is numbered by its index: it need not be of a layer. */
export const toldWords = (name: string, rows: readonly Told[], t: Translate, leads = false): string =>
  seriesWords(
    name,
    rows.map((row, layer) => ({ ...toldOf(row), layer })),
    countNaming(t),
    t,
    leads
  );
