import * as React from 'react';
import type { PanelModel } from '../shell/panel-model';
import { Select } from '../shell/fields';
import { PanelButton } from '../shell/section';
import { COMPARE_AS, comparingViews, type CompareAs } from './runs-model';

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
        <Select
          className="jp-MegalensSelect"
          value={compare}
          options={COMPARE_AS.map(each => [each, words[each]])}
          choose={value => setCompare(COMPARE_AS.find(each => each === value) ?? 'overlay')}
        />
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
