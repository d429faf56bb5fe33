import * as React from 'react';
import type { ViewOptions } from '../../protocol/views.generated';
import type { PanelModel } from '../shell/panel-model';
import { Section } from '../shell/section';

/** Opens views as tabs, and takes what they show elsewhere. */
export function ViewsSection({ model }: { model: PanelModel }): React.ReactElement | null {
  const { open, trans } = model;
  if (open === null || open.source.hello === null) {
    return null;
  }
  const views = [
    ['heatmap', trans.__('Heatmap'), trans.__('One tensor, position by tile')],
    ['trend', trans.__('Trend'), trans.__('A statistic per layer over steps')],
    ['history', trans.__('History'), trans.__('Layer by step, and the tensor at any of them')],
    [
      'moments',
      trans.__('Moments'),
      trans.__('Statistics of weights, gradients and activations, grouped as you like')
    ],
    ['scalars', trans.__('Scalars'), trans.__('Loss and other numbers over steps')]
  ] as const;
  const traced = open.trace.tracing;
  // Why a view would be empty now, or null.
  const onlyStatistics = model.runs.chosen?.kind === 'statistics';
  const lacking = (view: ViewOptions['view']): string | null => {
    if (onlyStatistics) {
      return view === 'moments' ? null : trans.__('These files hold statistics only');
    }
    switch (view) {
      case 'scalars':
        return null;
      case 'moments':
        return open.source.hello?.statistics === undefined
          ? trans.__(
              'No statistics are logged. In the training script: megalens.log_statistics(model, optimizer)'
            )
          : null;
      default:
        return traced ? null : trans.__('Nothing is traced yet');
    }
  };
  return (
    <Section name="views" title={trans.__('Views')}>
      <div className="jp-MegalensViews">
        {views.map(([view, label, help]) => (
          <button
            key={view}
            type="button"
            className="jp-MegalensButton"
            data-view={view}
            title={lacking(view) ?? trans.__('%1. Click for a tab, or drag into a notebook', help)}
            onClick={() => void model.openView(view)}
          >
            {label}
          </button>
        ))}
      </div>
      <div className="jp-MegalensViews">
        <button type="button" className="jp-MegalensButton" onClick={() => void model.exportReport()}>
          {trans.__('Export report…')}
        </button>
        <button
          type="button"
          className="jp-MegalensButton"
          title={trans.__('Python that does in a cell what is shown here')}
          onClick={() => model.copyCode()}
        >
          {trans.__('Copy as code')}
        </button>
      </div>
    </Section>
  );
}
