export * from './back-off';
export * from './client-error';
export * from './close-codes';
export * from './hub-connection';
export * from './hub-socket';
export * from './hub-state';
export * from './runs-api';
export * from './sequence';
