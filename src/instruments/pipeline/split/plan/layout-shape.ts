import type { SplitFamily, SplitLayout } from '../protocol/split.generated';

/** The families of layouts, in the order of `SplitFamily`. */
export const SPLIT_FAMILIES: readonly SplitFamily[] = [
  'ordinary',
  'recompute',
  'pipeline',
  'pipeline_recompute',
  'split',
  'megafbd'
];

export const isApart = (family: SplitFamily): boolean => family === 'split' || family === 'megafbd';

export function forwardTensorOf({ family, tensor, forward_tensor }: SplitLayout): number {
  return family === 'megafbd' ? 1 : family === 'split' ? (forward_tensor ?? tensor) : tensor;
}

/**
 * Devices of each kind that a layout takes; of MegaFBD with a coordinator, of the kind that has most to
 * spare.
 * @returns null where there are not so many.
 */
export function devicesOf(
  layout: SplitLayout,
  kinds: readonly { readonly count: number }[]
): number[] | null {
  const { family, data, tensor, stages } = layout;
  const used = kinds.map(() => 0);
  const take = (kind: number | null | undefined, count: number): void => {
    if (kind !== null && kind !== undefined) {
      used[kind] = (used[kind] ?? 0) + count;
    }
  };
  for (const { device, forward_device } of stages) {
    take(device, data * tensor);
    take(forward_device, data * forwardTensorOf(layout));
  }
  if (family === 'megafbd') {
    const spare = kinds.map(({ count }, kind) => count - used[kind]!);
    take(spare.indexOf(Math.max(...spare)), 1);
  }
  return used.some((count, kind) => count > kinds[kind]!.count) ? null : used;
}
