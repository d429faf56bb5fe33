import type { TranslationBundle } from '@jupyterlab/translation';
import { formatInteger } from '../../charts/format';
import type { Statistics } from '../../protocol/messages.generated';

/** What is logged and how often: `gradients every step; activations, residual stream every 100 steps`. Empty where nothing is. */
export function statisticsText(logged: Statistics | undefined, trans: TranslationBundle): string {
  const names: Record<keyof Statistics, string> = {
    param: trans.__('parameters'),
    grad: trans.__('gradients'),
    activation: trans.__('activations'),
    dgrad: trans.__('activation gradients'),
    residual: trans.__('residual stream'),
    residual_dgrad: trans.__('residual gradients'),
    attention_entropy: trans.__('attention entropy'),
    attention_max: trans.__('largest attention'),
    router_entropy: trans.__('router entropy'),
    router_similarity: trans.__('router similarity'),
    stable_rank: trans.__('stable ranks'),
    kernel_norm: trans.__('kernel norms')
  };
  const byInterval = new Map<number, string[]>();
  for (const [stat, name] of Object.entries(names)) {
    const every = logged?.[stat as keyof Statistics];
    if (every !== undefined) {
      byInterval.set(every, [...(byInterval.get(every) ?? []), name]);
    }
  }
  return [...byInterval]
    .sort(([a], [b]) => a - b)
    .map(([every, stats]) =>
      every === 1
        ? trans.__('%1 every step', stats.join(', '))
        : trans.__('%1 every %2 steps', stats.join(', '), formatInteger(every))
    )
    .join('; ');
}
