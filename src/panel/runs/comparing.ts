import { viewInfos } from '../../protocol/view-info';
import type { IViewInfo } from '../../protocol/view-descriptor';
import { viewDefaults } from '../../protocol/view-options';

/** How runs are compared: as lines over one another, differences from the first run, or ratios to it. */
export const COMPARE_AS = ['overlay', 'difference', 'ratio'] as const;
export type CompareAs = (typeof COMPARE_AS)[number];

/** The views that can show several runs. */
export function comparingViews(): readonly IViewInfo[] {
  return viewInfos().filter(({ name, offer }) => offer.includes('panel') && 'runs' in viewDefaults(name));
}
