export * from './aggregate-error';
export * from './decimate';
export * from './group';
export * from './moments';
export * from './statistics';
export * from './trailing-mean';
export * from './trend';
