import * as React from 'react';
import { viewInfos } from '../../protocol/view-info';
import type { IViewInfo } from '../../protocol/view-descriptor';
import { hasRows } from '../shell/open-run';
import type { PanelModel } from '../shell/panel-model';
import { Section, PanelButton } from '../shell/section';

/** Opens views as tabs, and takes what they show elsewhere. */
export function ViewsSection({ model }: { model: PanelModel }): React.ReactElement | null {
  const { open, trans } = model;
  if (open === null || open.source.hello === null) {
    return null;
  }
  const views = viewInfos().filter(({ offer }) => offer.includes('panel'));
  // Why a view would be empty now, or null.
  const lacking = ({ needs: { streams, absent } }: IViewInfo): string | null => {
    if (model.runs.chosen?.kind === 'statistics') {
      return streams.includes('moments') ? null : trans.__('These files hold statistics only');
    }
    return streams.every(stream => hasRows(open, stream))
      ? null
      : trans.__(absent ?? 'This run has no rows of it');
  };
  return (
    <Section name="views" title={trans.__('Views')}>
      <div className="jp-MegalensViews">
        {views.map(info => (
          <PanelButton
            key={info.name}
            data-view={info.name}
            title={
              lacking(info) ??
              trans.__('%1. Click for a tab, or drag into a notebook', trans.__(info.summary))
            }
            act={() => void model.openView(info.name)}
          >
            {trans.__(info.title)}
          </PanelButton>
        ))}
      </div>
      <div className="jp-MegalensViews">
        <PanelButton act={() => void model.exportReport()}>{trans.__('Export report…')}</PanelButton>
        <PanelButton
          title={trans.__('Python that does in a cell what is shown here')}
          act={() => model.copyCode()}
        >
          {trans.__('Copy as code')}
        </PanelButton>
      </div>
    </Section>
  );
}
