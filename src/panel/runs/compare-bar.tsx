import * as React from 'react';
import { viewInfos } from '../../protocol/view-info';
import type { IViewInfo } from '../../protocol/view-descriptor';
import { viewDefaults } from '../../protocol/view-options';
import type { PanelModel } from '../shell/panel-model';
import { PanelButton } from '../shell/section';

/** How runs are compared: as lines over one another, differences from the first run, or ratios to it. */
export const COMPARE_AS = ['overlay', 'difference', 'ratio'] as const;
export type CompareAs = (typeof COMPARE_AS)[number];

/** The views that can show several runs. */
export function comparingViews(): readonly IViewInfo[] {
  return viewInfos().filter(({ name, offer }) => offer.includes('panel') && 'runs' in viewDefaults(name));
}

/** Opens views that compare the marked runs; nothing while none, or one, is marked. */
export function CompareBar({ model }: { model: PanelModel }): React.ReactElement | null {
  const { runs, trans } = model;
  const [compare, setCompare] = React.useState<CompareAs>('overlay');
  const { marked } = runs;
  if (marked.length < 2) {
    return null;
  }
  const words: Record<CompareAs, string> = {
    overlay: trans.__('overlay'),
    difference: trans.__('difference'),
    ratio: trans.__('ratio')
  };
  return (
    <div className="jp-MegalensCompare" role="group" aria-label={trans.__('Compare the marked runs')}>
      <label>
        {trans.__('Compare %1 runs as', marked.length)}{' '}
        <select
          className="jp-MegalensSelect"
          value={compare}
          onChange={event => setCompare(COMPARE_AS.find(each => each === event.target.value) ?? 'overlay')}
        >
          {COMPARE_AS.map(each => (
            <option key={each} value={each}>
              {words[each]}
            </option>
          ))}
        </select>
      </label>
      {comparingViews().map(({ name, title }) => (
        <PanelButton key={name} act={() => void model.compare(name, compare)}>
          {trans.__(title)}
        </PanelButton>
      ))}
      <PanelButton className="jp-MegalensLink" act={() => runs.mark([])}>
        {trans.__('Clear')}
      </PanelButton>
    </div>
  );
}
