import type { Status } from '../../protocol/messages.generated';
import type { ViewOptions } from '../../protocol/views.generated';
import { oneTensor } from '../statistics/name-facts';
import { STATS } from '../statistics/words';

/**
 * What shows the first value that was not finite: of traced tensors its heatmap, of statistics the tensor
 * over all steps.
 * @returns Null where there was none.
 */
export function nonFiniteView(status: Status | null, of: 'tensors' | 'moments'): ViewOptions | null {
  const { first, moments } = status?.nonfinite ?? {};
  if (of === 'tensors') {
    return first === undefined
      ? null
      : { view: 'heatmap', flag: first.flag, layers: String(first.layer), step: first.step };
  }
  const stat = STATS.find(each => each === moments?.first.stat);
  return moments === undefined || stat === undefined
    ? null
    : { view: 'statistics', stat, step: moments.first.step, steps: null, ...oneTensor(moments.first.name) };
}
